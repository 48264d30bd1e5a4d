//go:build linux

package communicator

import "slices"

// findLists returns those of the pointers that point to an array whose first pointer points to a communicator.
func (s *search) findLists(pointers []uint64) (lists []uint64, err error) {
	const batch = 2048 // 2 MiB of arrays
	for part := range slices.Chunk(pointers, batch) {
		words := make([][]uint64, len(part))
		spans := make([]span, len(part))
		for i, at := range part {
			words[i] = make([]uint64, s.wordsAt(at))
			spans[i] = span{at: at, into: bytesOf(words[i])}
		}
		if err := s.read(spans); err != nil {
			return nil, err
		}
		var at, first []uint64
		for i := range part {
			n := slices.IndexFunc(words[i], func(word uint64) bool { return word != 0 })
			if spans[i].ok && n >= 0 && s.isObject(words[i][n]) {
				at, first = append(at, part[i]), append(first, words[i][n])
			}
		}
		isObject, err := s.haveMagic(first)
		if err != nil {
			return nil, err
		}
		for i := range at {
			if isObject[i] {
				lists = append(lists, at[i])
			}
		}
	}
	return lists, nil
}

// wordsAt returns the number of words from an address on that are in writable memory, at most firstListWords.
func (s *search) wordsAt(at uint64) int { return int(min(s.room(at)/8, firstListWords)) }

// haveMagic says for each address whether the memory there begins as a communicator.
func (s *search) haveMagic(list []uint64) ([]bool, error) {
	words, spans := make([]uint64, len(list)), make([]span, len(list))
	for i, at := range list {
		spans[i] = span{at: at, into: bytesOf(words[i : i+1])}
	}
	if err := s.read(spans); err != nil {
		return nil, err
	}
	have := make([]bool, len(list))
	for i := range list {
		have[i] = spans[i].ok && words[i] == magic
	}
	return have, nil
}

// readList returns the communicators of an array, at most one more than maxCommunicators. The array ends at the first
// word that is neither NULL nor a pointer to a communicator.
func (s *search) readList(at uint64) (found []uint64, err error) {
	for n := 0; n < maxListWords && len(found) <= maxCommunicators; n += firstListWords {
		from := at + uint64(n)*8
		if s.wordsAt(from) == 0 {
			return found, nil
		}
		words := make([]uint64, s.wordsAt(from))
		part := []span{{at: from, into: bytesOf(words)}}
		if err := s.read(part); err != nil {
			return nil, err
		}
		end := slices.IndexFunc(words, func(word uint64) bool { return word != 0 && !s.isObject(word) })
		if !part[0].ok {
			return found, nil
		}
		isLast := end >= 0 || len(words) < firstListWords
		if end >= 0 {
			words = words[:end]
		}
		words = slices.DeleteFunc(words, func(word uint64) bool { return word == 0 })
		isObject, err := s.haveMagic(words)
		if err != nil {
			return nil, err
		}
		for i, word := range words {
			if !isObject[i] {
				return found, nil
			}
			found = append(found, word)
		}
		if isLast || len(words) == 0 {
			return found, nil
		}
	}
	return found, nil
}
