//go:build linux

package progress

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Rate is the number of polls of slots per second. RateOff is the zero value.
type Rate int

// Special rates.
const (
	RateOff  Rate = 0
	RateAuto Rate = 1000
	RateFull Rate = -1 // as fast as one CPU can
)

// maxRate is the highest rate with pauses between polls.
const maxRate Rate = 200_000

// RateNames are the rates with a name.
var RateNames = []string{"off", "auto", "full"}

// ParseRate returns the rate that a text such as "auto", "500Hz" or "20kHz" means.
func ParseRate(text string) (Rate, error) {
	switch text {
	case "off":
		return RateOff, nil
	case "auto":
		return RateAuto, nil
	case "full":
		return RateFull, nil
	}
	number, unit := strings.TrimSuffix(text, "kHz"), 1000.0
	if number == text {
		number, unit = strings.TrimSuffix(text, "Hz"), 1
	}
	n, err := strconv.ParseFloat(number, 64)
	if number == text || err != nil {
		return 0, errors.New("must be off, auto, full, or a rate such as 20kHz")
	}
	rate := Rate(n * unit)
	if !(n*unit >= 1) || n*unit > float64(maxRate) {
		return 0, fmt.Errorf("a rate must be from 1Hz to %dkHz", maxRate/1000)
	}
	return rate, nil
}

// String returns the text for ParseRate.
func (r Rate) String() string {
	switch {
	case r == RateOff:
		return "off"
	case r == RateAuto:
		return "auto"
	case r == RateFull:
		return "full"
	case r%1000 == 0:
		return fmt.Sprintf("%dkHz", r/1000)
	}
	return fmt.Sprintf("%dHz", int(r))
}

// interval returns the time from poll to poll; 0: no pause.
func (r Rate) interval() time.Duration {
	if r <= 0 {
		return 0
	}
	return time.Second / time.Duration(r)
}
