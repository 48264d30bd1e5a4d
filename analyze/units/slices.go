package units

func Grow[T any](list []T, id int32) []T {
	for int(id) >= len(list) {
		var zero T
		list = append(list, zero)
	}
	return list
}
