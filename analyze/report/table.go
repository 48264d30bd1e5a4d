package report

// Hide keeps a column out of tables.
func Hide(columns []Column, key string) { Title(columns, key, "") }

// Title gives a column a heading.
func Title(columns []Column, key, text string) {
	for i := range columns {
		if columns[i].Key == key {
			columns[i].Title = text
		}
	}
}
