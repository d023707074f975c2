package text

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounded renders a count that was taken up to one more than most: 10,000+.
func Bounded(n, most int64) string {
	if n > most {
		return Grouped(most) + "+"
	}
	return Grouped(n)
}

// CountedTo is Counted of a count that was taken up to one more than most: "10,000+ jobs".
func CountedTo(n, most int64, noun string) string {
	if n > most {
		return Bounded(n, most) + strings.TrimPrefix(Counted(most, noun), Grouped(most))
	}
	return Counted(n, noun)
}

// Grouped renders a count with thousands separators: 1,234,567.
func Grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// Counted renders a count with its noun: 1 job, 2 jobs.
func Counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Grouped(n) + " " + noun + "s"
}

// Short renders a duration at the precision that people read.
func Short(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	d = d.Round(time.Second)
	if d < time.Hour {
		return d.String()
	}
	if hours := int(d.Hours()); hours >= 48 {
		return fmt.Sprintf("%dd %dh", hours/24, hours%24)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// cut cuts a text at a width.
func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}

// OrNone renders an empty text as none.
func OrNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// Int renders a number that is a name, as a job's id: without separators.
func Int(n int64) string { return strconv.FormatInt(n, 10) }

// ShellWord quotes a text for a shell where it has to be.
func ShellWord(text string) string {
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:/") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
