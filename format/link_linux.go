package format

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// linkFile makes a hard link to a file of one folder in another folder, with the same name.
func linkFile(from, to *os.Root, name string) error {
	source, err := from.Open(".")
	if err != nil {
		return err
	}
	target, err := to.Open(".")
	if err != nil {
		return errors.Join(err, source.Close())
	}
	if err = unix.Linkat(int(source.Fd()), name, int(target.Fd()), name, 0); err != nil {
		err = &os.LinkError{Op: "link", Old: name, New: name, Err: err}
	}
	return errors.Join(err, source.Close(), target.Close())
}
