// Package ship serves the numbers of an agent to Prometheus, in its text format and in OpenMetrics. It needs no
// privileges: it reads the agent's socket for each scrape, and keeps only which processes have series of their own.
package ship
