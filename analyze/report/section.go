package report

// Section is a table, the facts or the totals of a report, as --explain prints them.
type Section struct {
	Title   string
	Columns []Column
}

// HTMLSection is the section of the HTML page for one report. A report with an empty Title has no
// section.
type HTMLSection struct {
	ID    string // HTML id of the section; "" means the name of the report
	Title string
	About string // one sentence that introduces the section
	Empty string // the sentence for a recording without data for the report
	// Kind is the call kind that the report needs. The page omits the section if the recording has
	// no call of this kind. "" means that the report does not depend on one kind.
	Kind string
	// Tables are the names of the tables that the page shows. nil means all tables.
	Tables []string
	// Chart is the name of the chart that the page's script draws in the section, or "".
	Chart string
}
