package units

// GrowToIndex appends zero values to list until the index id is valid, and returns the list.
func GrowToIndex[T any](list []T, id int32) []T {
	for int(id) >= len(list) {
		var zero T
		list = append(list, zero)
	}
	return list
}
