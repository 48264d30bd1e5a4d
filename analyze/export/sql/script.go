package sql

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteViews writes the statements that create all views over the recordings. It returns an error for
// names that SQL cannot hold, and errors of w.
func WriteViews(w io.Writer, sources []*Source) error {
	rows, err := selectRows(sources)
	if err != nil {
		return err
	}
	facts, err := selectRecordings(sources)
	if err != nil {
		return err
	}
	steps, err := selectSteps(sources)
	if err != nil {
		return err
	}
	aliases := false
	for _, s := range sources {
		aliases = aliases || s.hasAliases
	}
	generated := map[string]string{"recording_rows": rows, "recordings": facts, "steps": steps}
	for _, v := range Views {
		query := v.query
		if query == "" {
			query = generated[v.Name]
		}
		_, err := fmt.Fprintf(w, "create or replace view %s as\n%s;\n", v.Name, withStacks(query, aliases))
		if err != nil {
			return err
		}
	}
	return nil
}

// withStacks replaces the marks of a query for the columns of stacks. Only recordings with rationed
// stacks pay for the join.
func withStacks(query string, aliases bool) string {
	columns, join := "stack_id, stack_status, site", ""
	if aliases {
		columns = `coalesce(a.of_stack_id, r.stack_id) as stack_id,
	case when a.of_stack_id is null then r.stack_status else 'inferred' end as stack_status,
	coalesce(a.of_site, r.site) as site`
		join = `left join (
	select recording as of_recording, stack_id as rationed_id, value::integer as of_stack_id, site as of_site
	from recording_rows where class = 'stack' and kind = 'stack_alias'
	qualify row_number() over (partition by recording, stack_id order by start_ns desc) = 1
) a on r.stack_status = 'rationed' and a.of_recording = r.recording and a.rationed_id = r.stack_id`
	}
	return strings.NewReplacer("$STACK", columns, "$ALIASES", join).Replace(query)
}

// WriteLimits writes the statements that leave DuckDB access to the files of the recordings only. folder
// is a folder for temporary data.
func WriteLimits(w io.Writer, sources []*Source, folder string) error {
	temporary, err := QuoteText(folder)
	if err != nil {
		return err
	}
	var files []string
	for _, s := range sources {
		list, err := quoteAll(slices.Concat(s.Files, s.patterns()))
		if err != nil {
			return err
		}
		files = append(files, list...)
	}
	_, err = fmt.Fprintf(w, `set autoinstall_known_extensions = false;
set autoload_known_extensions = false;
set temp_directory = %s;
set allowed_paths = [%s];
set enable_external_access = false;
set lock_configuration = true;
`, temporary, strings.Join(files, ", "))
	return err
}

func quoteAll(texts []string) ([]string, error) {
	var quoted []string
	for _, text := range texts {
		q, err := QuoteText(text)
		if err != nil {
			return nil, err
		}
		quoted = append(quoted, q)
	}
	return quoted, nil
}

// selectRows returns the query for the rows of all recordings. Columns that a recording lacks have the
// value that FORMAT.md gives them.
func selectRows(sources []*Source) (string, error) {
	var list []string
	for _, s := range sources {
		name, err := QuoteText(s.Name)
		if err != nil {
			return "", err
		}
		files, err := quoteAll(s.patterns())
		if err != nil {
			return "", err
		}
		columns := []string{name + " as recording"}
		for _, c := range rowColumns {
			if s.missing[c.name] {
				columns = append(columns, c.valueOfMissing()+" as "+c.name)
			} else {
				columns = append(columns, c.name)
			}
		}
		list = append(list, fmt.Sprintf("select %s\nfrom read_parquet([%s], hive_partitioning = false)",
			strings.Join(columns, ", "), strings.Join(files, ", ")))
	}
	return strings.Join(list, "\nunion all\n"), nil
}

// selectRecordings returns the query for one row for each recording.
func selectRecordings(sources []*Source) (string, error) {
	var rows []string
	for _, s := range sources {
		host := strings.ReplaceAll(strings.ToValidUTF8(s.Meta.Host, "\ufffd"), "\x00", "\ufffd")
		texts, err := quoteAll([]string{s.Name, host, s.Meta.Complete})
		if err != nil {
			return "", err
		}
		var seen, recorded, lost, dropped int64
		for _, c := range s.Meta.Calls {
			seen, recorded, lost, dropped = seen+c.Seen, recorded+c.Recorded, lost+c.Lost, dropped+c.Dropped
		}
		row := strings.Join(texts, ", ")
		for _, n := range []int64{s.Meta.StartNs, s.Meta.EndNs, seen, recorded, lost, dropped} {
			row += fmt.Sprintf(", %d::bigint", n)
		}
		rows = append(rows, "("+row+")")
	}
	return `select recording, host, complete, make_timestamp_ns(start_ns) as "time", start_ns, end_ns,
	seen_calls, recorded_calls, lost_calls, dropped_calls
from (values
	` + strings.Join(rows, ",\n\t") + `
) r (recording, host, complete, start_ns, end_ns, seen_calls, recorded_calls, lost_calls, dropped_calls)`, nil
}

// selectSteps returns the query for the steps of all recordings.
func selectSteps(sources []*Source) (string, error) {
	rows := []string{"(null::varchar, 0::integer, 0::bigint, 0::bigint, 0::bigint, 0::bigint, false)"}
	for _, s := range sources {
		name, err := QuoteText(s.Name)
		if err != nil {
			return "", err
		}
		for _, st := range s.Steps {
			rows = append(rows, fmt.Sprintf("(%s, %d, %d, %d, %d, %d, %t)",
				name, st.Pid, st.Number, st.StartNs, st.EndNs, st.Operations, st.IsCut))
		}
	}
	return `select recording, pid, step, make_timestamp_ns(start_ns) as "time", start_ns, end_ns,
	end_ns - start_ns as dur_ns, operations, is_cut, operations as works
from (values
	` + strings.Join(rows, ",\n\t") + `
) s (recording, pid, step, start_ns, end_ns, operations, is_cut) where recording is not null`, nil
}
