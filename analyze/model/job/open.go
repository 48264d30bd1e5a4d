package job

import (
	"path/filepath"
	"runtime"
	"sync"

	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/model/facts"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// Options are the options of Open.
type Options struct {
	// Jobs selects processes by the name of their job, as timeline.ProcessFilter does. nil selects all.
	Jobs []string
	// Progress, if not nil, is called after each recording, from one goroutine at a time.
	Progress func(done, of int)
}

// Open returns the job of recordings: their processes with a rank, and their hosts. It reads footers and facts only,
// of as many recordings at once as there are processors. Rank and size come from the environment of a process, else
// from its communicators. It returns *PathError for a path that is not a recording, *DuplicateError, *MixedError and
// *NoRankError.
func Open(paths []string, opt Options) (*Job, error) {
	list := make([]contents, len(paths))
	done := 0
	err := eachParallel(len(paths), func(i int) error {
		var err error
		list[i], err = readContents(paths[i])
		return err
	}, func() {
		if done++; opt.Progress != nil {
			opt.Progress(done, len(paths))
		}
	})
	if err != nil {
		return nil, err
	}
	if err := checkDuplicates(paths, list); err != nil {
		return nil, err
	}
	return newJob(paths, list, opt)
}

// Of returns the job of one open recording. Its processes without a rank are no members.
func Of(t *timeline.Timeline) (*Job, error) {
	c := contents{meta: t.Rec.Meta, facts: &t.Facts}
	var err error
	if c.communicators, err = collective.ReadCommunicators(t.Pieces...); err != nil {
		return nil, t.WrapReadError(err)
	}
	j := &Job{Paths: []string{t.Rec.Path}}
	j.addRecordings([]contents{c}, Options{})
	return j, nil
}

// newJob returns the job of the contents of recordings.
func newJob(paths []string, list []contents, opt Options) (*Job, error) {
	j := &Job{Paths: paths}
	j.addRecordings(list, opt)
	for i := range list {
		if len(j.MembersOf(i)) == 0 {
			j.WithoutRank = append(j.WithoutRank, i)
		}
	}
	if len(j.Members) == 0 {
		return nil, &NoRankError{Path: paths[0], Recordings: len(paths), Jobs: opt.Jobs}
	}
	if err := checkOneJob(j); err != nil {
		return nil, err
	}
	return j, nil
}

// contents has what Open reads of a recording.
type contents struct {
	meta          format.Meta
	facts         *facts.Facts
	communicators []collective.Communicator
}

// readContents reads the facts of a recording.
func readContents(path string) (contents, error) {
	rec, err := format.Open(path)
	if err != nil {
		return contents{}, &PathError{path, err}
	}
	defer rec.Close()
	c := contents{meta: rec.Meta}
	if c.facts, err = facts.ReadWithoutSamples(rec); err != nil {
		return contents{}, &PathError{path, err}
	}
	if c.communicators, err = collective.ReadCommunicators(rec); err != nil {
		return contents{}, &PathError{path, err}
	}
	return c, nil
}

// eachParallel calls do for 0..n-1 on all processors, and then after one call at a time. It returns the error of the
// smallest index that failed, after all calls that had begun.
func eachParallel(n int, do func(i int) error, after func()) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	var mu sync.Mutex
	next, failed := 0, false
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				stop := failed || i >= n
				mu.Unlock()
				if stop {
					return
				}
				errs[i] = do(i)
				mu.Lock()
				failed = failed || errs[i] != nil
				after()
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Open opens recording i, an index in Paths. The caller closes Rec of the result. Reports open one recording
// after the other where they can, so that a job of many recordings fits into memory.
func (j *Job) Open(i int) (*timeline.Timeline, error) { return j.open(i, timeline.Open) }

// OpenEnd opens the end of recording i, see timeline.OpenEnd. The caller closes Rec of the result.
func (j *Job) OpenEnd(i int) (*timeline.Timeline, error) { return j.open(i, timeline.OpenEnd) }

// open opens recording i.
func (j *Job) open(i int, prepare func(*format.Recording) (*timeline.Timeline, error)) (*timeline.Timeline, error) {
	rec, err := format.Open(filepath.Clean(j.Paths[i]))
	if err != nil {
		return nil, &PathError{j.Paths[i], err}
	}
	t, err := prepare(rec)
	if err != nil {
		rec.Close()
		return nil, &PathError{j.Paths[i], err}
	}
	return t, nil
}
