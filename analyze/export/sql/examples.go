package sql

import _ "embed"

// Examples are ten queries that work on any recording, as one script. A comment before each query has the
// question that it answers. Blank lines separate the queries.
//
//go:embed examples.sql
var Examples string
