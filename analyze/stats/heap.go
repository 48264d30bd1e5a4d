package stats

// HeapPush, HeapPop and HeapFix implement a binary heap in a slice. The least element is first.

// HeapPush adds v to the heap and returns the new slice.
func HeapPush[T any](heap []T, v T, less func(a, b T) bool) []T {
	heap = append(heap, v)
	for i := len(heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !less(heap[i], heap[up]) {
			break
		}
		heap[i], heap[up] = heap[up], heap[i]
		i = up
	}
	return heap
}

// HeapPop removes the first element and returns the new slice. The heap must not be empty.
func HeapPop[T any](heap []T, less func(a, b T) bool) []T {
	last := len(heap) - 1
	heap[0] = heap[last]
	heap = heap[:last]
	HeapFix(heap, less)
	return heap
}

// HeapFix restores the heap order after the first element has changed.
func HeapFix[T any](heap []T, less func(a, b T) bool) {
	for i := 0; ; {
		least := i
		for _, child := range []int{2*i + 1, 2*i + 2} {
			if child < len(heap) && less(heap[child], heap[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		heap[i], heap[least] = heap[least], heap[i]
		i = least
	}
}
