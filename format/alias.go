package format

import (
	"slices"
	"sync"
)

// A call whose stack was rationed has a stack ID of its own. When the recorder learns which stack
// the call had, it writes a row of kind stack_alias. Column methods of Group replace the stack ID,
// the site and the status of such calls, so that models see only stacks with frames.

// StackAlias is the stack that a rationed stack ID means.
type StackAlias struct {
	StackID int32  // the ID of a row of kind stack
	Site    string // its call site
}

// aliasTable holds the aliases of a recording. It reads them at the first use.
type aliasTable struct {
	once    sync.Once
	aliases map[int32]StackAlias
	err     error
}

// stackAliases returns the aliases of the recording, by stack ID. Safe for concurrent use.
func (r *Recording) stackAliases() (map[int32]StackAlias, error) {
	t := &r.aliases
	t.once.Do(func() {
		t.aliases = make(map[int32]StackAlias)
		t.err = r.Rows(func(row *Row) error {
			if row.Kind == KindStackAlias {
				t.aliases[row.StackID] = StackAlias{StackID: int32(row.Value), Site: row.Site}
			}
			return nil
		}, ClassStack)
	})
	return t.aliases, t.err
}

// rationedRows returns the rows of the group with a rationed stack and their aliases. It returns
// none for a group without rationed stacks.
func (g *Group) rationedRows() (rows []int32, aliases map[int32]StackAlias) {
	if g.recording == nil || !slices.Contains(g.Dictionary("stack_status"), StackRationed) {
		return nil, nil
	}
	aliases, err := g.recording.stackAliases()
	if err != nil {
		g.storeError(err)
		return nil, nil
	}
	if len(aliases) == 0 {
		return nil, nil
	}
	status := readStringColumn(g, "stack_status", Strings{})
	rationed := int32(slices.Index(status.Dict, StackRationed))
	for i, s := range status.Index {
		if s == rationed {
			rows = append(rows, int32(i))
		}
	}
	return rows, aliases
}

// resolveStackIDs replaces rationed stack IDs by those of their stacks.
func (g *Group) resolveStackIDs(ids []int32) []int32 {
	rows, aliases := g.rationedRows()
	for _, i := range rows {
		if a, ok := aliases[ids[i]]; ok {
			ids[i] = a.StackID
		}
	}
	return ids
}

// resolveViaIDs replaces the IDs of the column via_stack_id that were rationed by those of their stacks. Rows have no status
// of this stack, so every ID is looked up.
func (g *Group) resolveViaIDs(ids []int32) []int32 {
	if g.recording == nil || !slices.ContainsFunc(ids, func(id int32) bool { return id != 0 }) {
		return ids
	}
	aliases, err := g.recording.stackAliases()
	if err != nil {
		g.storeError(err)
	}
	if len(aliases) == 0 {
		return ids
	}
	for i, id := range ids {
		if a, ok := aliases[id]; ok {
			ids[i] = a.StackID
		}
	}
	return ids
}

// resolveStackTexts replaces the site or the status of calls with a rationed stack.
func (g *Group) resolveStackTexts(column string, s Strings) Strings {
	rows, aliases := g.rationedRows()
	if len(rows) == 0 {
		return s
	}
	ids := readInt32Column(g, "stack_id", nil)
	index := make(map[string]int32, len(s.Dict))
	for i, text := range s.Dict {
		index[text] = int32(i)
	}
	s.Dict = slices.Clone(s.Dict)
	for _, i := range rows {
		a, ok := aliases[ids[i]]
		if !ok {
			continue
		}
		text := a.Site
		if column == "stack_status" {
			text = StackInferred
		}
		n, ok := index[text]
		if !ok {
			n = int32(len(s.Dict))
			index[text], s.Dict = n, append(s.Dict, text)
		}
		s.Index[i] = n
	}
	return s
}
