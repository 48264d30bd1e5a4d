package origin

// Thread identifies a thread of a process.
type Thread struct{ Pid, Tid int32 }

// StringNumbers assigns a small number to each distinct string. The zero value is empty.
type StringNumbers struct {
	Ids  map[string]int32
	List []string
}

// NumberOf returns the number of a string. A new string gets the next number.
func (n *StringNumbers) NumberOf(s string) int32 {
	if id, ok := n.Ids[s]; ok {
		return id
	}
	if n.Ids == nil {
		n.Ids = make(map[string]int32)
	}
	id := int32(len(n.List))
	n.Ids[s] = id
	n.List = append(n.List, s)
	return id
}

// NumbersOf returns the number of each string in a column's dictionary.
func (n *StringNumbers) NumbersOf(dict []string) []int32 {
	ids := make([]int32, len(dict))
	for i, s := range dict {
		ids[i] = n.NumberOf(s)
	}
	return ids
}
