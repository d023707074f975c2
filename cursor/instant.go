package cursor

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"
)

// PostgreSQL stores a timestamptz as microseconds since 2000-01-01 UTC and so
// does a Position: the order is the order of the numbers, infinities included.
// Unlike microseconds since 1970 they hold the whole range in an int64.
const (
	infinity         = math.MaxInt64
	negativeInfinity = math.MinInt64

	epochSeconds  = 946_684_800 // 2000-01-01 UTC in Unix seconds
	microsPerSec  = 1_000_000
	minInstant    = -211_813_488_000_000_000  // 4714-11-24 BC, PostgreSQL's MIN_TIMESTAMP
	afterInstants = 9_223_371_331_200_000_000 // 294277-01-01, PostgreSQL's END_TIMESTAMP
)

// errInstantRange is the problem with an instant PostgreSQL cannot store.
var errInstantRange = errors.New("is out of the range of timestamptz, 4714-11-24 BC to 294276-12-31")

// finiteInstant cuts t to microseconds and checks its range.
func finiteInstant(t time.Time) (value, error) {
	seconds := t.Unix() - epochSeconds
	// Compared in seconds first: the multiplication could overflow.
	if seconds < minInstant/microsPerSec || seconds >= afterInstants/microsPerSec {
		return value{}, errInstantRange
	}
	return value{kind: instantKind, number: seconds*microsPerSec + int64(t.Nanosecond()/1000)}, nil
}

// instantTime returns a finite instant as a time in UTC.
func instantTime(micros int64) time.Time {
	return time.Unix(epochSeconds+micros/microsPerSec, micros%microsPerSec*1000).UTC()
}

// instantText is the shape of a finite instant: a year of at least four digits,
// a microsecond of exactly six, and BC before the year 1.
var instantText = regexp.MustCompile(`^(\d{4,6})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{6})Z( BC)?$`)

// formatInstant writes an instant as PostgreSQL reads it.
func formatInstant(micros int64) string {
	switch micros {
	case infinity:
		return "infinity"
	case negativeInfinity:
		return "-infinity"
	}
	t := instantTime(micros)
	year, era := t.Year(), ""
	if year <= 0 {
		// The year before 1 is 1 BC for people and 0 for Go.
		year, era = 1-year, " BC"
	}
	return fmt.Sprintf("%04d-%s%s", year, t.Format("01-02T15:04:05.000000Z"), era)
}

// parseInstant is the inverse of formatInstant. A text of the right shape that
// names no day of the calendar comes back as another instant, which the
// caller's comparison with formatInstant refuses.
func parseInstant(s string) (value, bool) {
	switch s {
	case "infinity":
		return value{kind: instantKind, number: infinity}, true
	case "-infinity":
		return value{kind: instantKind, number: negativeInfinity}, true
	}
	m := instantText.FindStringSubmatch(s)
	if m == nil {
		return value{}, false
	}
	var n [7]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1]) // digits only, at most six
	}
	if m[8] != "" {
		n[0] = 1 - n[0]
	}
	v, err := finiteInstant(time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], n[6]*1000, time.UTC))
	return v, err == nil
}
