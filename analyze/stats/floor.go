package stats

// Floor tracks the lowest level of a quantity between checkpoints. What comes and goes between two
// checkpoints does not raise it, so its rise separates a leak from a sawtooth. The zero value has the
// level 0 before the first checkpoint.
type Floor struct {
	Level int64 // present level
	// Floors has the lowest level of each interval between two checkpoints that has ended. The time before
	// checkpoint 0 has no value. It is nil while all values are 0.
	Floors []int64
	lowest int64 // lowest level since the last checkpoint
	passed int   // number of passed checkpoints
}

// PassCheckpoints ends the intervals before checkpoint n, counted from 0. Smaller n than before have no
// effect.
func (f *Floor) PassCheckpoints(n int) {
	for ; f.passed < n; f.passed++ {
		if f.passed > 0 && (f.Floors != nil || f.lowest != 0) {
			if f.Floors == nil {
				f.Floors = make([]int64, f.passed-1)
			}
			f.Floors = append(f.Floors, f.lowest)
		}
		f.lowest = f.Level
	}
}

// Add changes the level.
func (f *Floor) Add(change int64) {
	f.Level += change
	f.lowest = min(f.lowest, f.Level)
}
