package stats

// A binary heap in a slice: the least element is the first.

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

// HeapPop removes the first element.
func HeapPop[T any](heap []T, less func(a, b T) bool) []T {
	last := len(heap) - 1
	heap[0] = heap[last]
	heap = heap[:last]
	HeapFix(heap, less)
	return heap
}

// HeapFix restores the order after the first element changed.
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
