package waitgraph

// components returns the number of the strongly connected part of each node, by Tarjan's algorithm without
// recursion.
func components(edges [][]int) []int {
	count := len(edges)
	part, index, low := make([]int, count), make([]int, count), make([]int, count)
	next := make([]int, count) // the next edge of a node on the path
	onStack := make([]bool, count)
	var stack, path []int
	numbered, parts := 0, 0
	enter := func(n int) {
		numbered++
		index[n], low[n] = numbered, numbered
		onStack[n] = true
		stack, path = append(stack, n), append(path, n)
	}
	for root := range count {
		if index[root] != 0 {
			continue
		}
		enter(root)
		for len(path) > 0 {
			n := path[len(path)-1]
			if next[n] < len(edges[n]) {
				to := edges[n][next[n]]
				next[n]++
				if index[to] == 0 {
					enter(to)
				} else if onStack[to] {
					low[n] = min(low[n], index[to])
				}
				continue
			}
			path = path[:len(path)-1]
			if len(path) > 0 {
				low[path[len(path)-1]] = min(low[path[len(path)-1]], low[n])
			}
			if low[n] != index[n] {
				continue
			}
			for {
				top := stack[len(stack)-1]
				stack = stack[:len(stack)-1]
				onStack[top], part[top] = false, parts
				if top == n {
					break
				}
			}
			parts++
		}
	}
	return part
}
