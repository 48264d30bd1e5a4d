package report

// Section is a table of a report, or its facts or totals, as --explain prints it.
type Section struct {
	Title   string
	Columns []Column
}

// Page is the section of the HTML page for a report. A report without a Title has none.
type Page struct {
	ID    string // of the section, if it is not the name of the report
	Title string
	About string // one sentence
	Empty string // the sentence for a recording in which the report finds nothing
	// Kind is the kind of calls without which the report is empty: then it is not made. "" if that
	// does not depend on one kind.
	Kind string
	// Tables are the names of the tables that the page shows; nil: all.
	Tables []string
	// Chart is the chart that scripts draw in the section, "" for none.
	Chart string
}
