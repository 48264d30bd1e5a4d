package report

// Section is a table of a report, or its facts or totals, as --explain prints it.
type Section struct {
	Title   string
	Columns []Column
}

// Page is how the HTML page shows a report: one section of it, with these texts. A report whose
// Title is "" has none.
type Page struct {
	ID    string // of the section, if it is not the name of the report
	Title string
	About string // one sentence
	Empty string // the sentence for a recording in which the report finds nothing
	// Kind is the kind of calls without which the report is empty, so that it need not be made;
	// "" if that cannot be told from one kind.
	Kind string
	// Tables are the names of those that the page shows; nil: all.
	Tables []string
	// Chart names what scripts draw in the section beside the tables; "": nothing.
	Chart string
}
