// Package words has the words of operators for statuses, times, rates and counts. Pages and drawings of the
// console use it.
package words

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job/schedule"
)

// Status is a status in words. Its tone selects the color and the shape in the style sheet.
type Status struct {
	Word string
	Tone text.Tone
}

// The tones that only pages have, in addition to the tones of package text.
const (
	TonePart text.Tone = "part" // finished with failures
	ToneStop text.Tone = "stop" // ended by an operator
	ToneHold text.Tone = "hold" // held by a pause
)

// genericWords are the words of generated pages for statuses in capital letters, and for outcomes. Other statuses are written in
// small letters.
var genericWords = map[string]string{"ABORTED": "Stopped", "PROCESSED": "Done", "DEAD": "Failed", "aborted": "stopped",
	"redriven": "sent again"}

// CellStatus returns the status of a cell of a generated page.
func CellStatus(s text.StatusCell) Status {
	word := s.Word
	if known, is := genericWords[word]; is {
		word = known
	} else if word == strings.ToUpper(word) {
		word = Sentence(strings.ToLower(word))
	}
	return Status{word + s.More, s.Tone}
}

// throttles are the reasons of a slow walk by rule.
var throttles = map[string]string{
	"replica_lag":         "a replica of the database lags behind",
	"query":               "a configured health check asks for it",
	"checkpoints":         "the database writes too many checkpoints",
	"foreground":          "other work keeps the database busy",
	"chunk_latency":       "the database answers slowly",
	"max_rows_per_second": "it is limited to a rate",
	"duty_cycle":          "it pauses between chunks as configured",
}

// AboutJob describes a job in a list, such as "Job 17 · push · lane night". The lane default is omitted.
func AboutJob(lane string, parts ...string) string {
	if lane != "" && lane != "default" {
		parts = append(parts, "lane "+lane)
	}
	return strings.Join(parts, " · ")
}

// ThrottledBy returns the reason of a slow walk by its rule.
func ThrottledBy(rule string) string {
	if why, known := throttles[rule]; known {
		return why
	}
	return strings.ReplaceAll(rule, "_", " ")
}

// Ratio returns a part of a whole with a digit below 10 %, or "0 %" of nothing.
func Ratio(part, whole float64) string {
	if whole <= 0 || part <= 0 {
		return "0 %"
	}
	switch p := 100 * part / whole; {
	case p < 0.1:
		return "under 0.1 %"
	case p < 9.95:
		return strconv.FormatFloat(p, 'f', 1, 64) + " %"
	default:
		return strconv.FormatFloat(p, 'f', 0, 64) + " %"
	}
}

// PerSecond returns a rate, such as "1,250/s", or "1,250 messages/s" with a noun.
func PerSecond(rate float64, noun string) string {
	unit := "/s"
	if noun != "" {
		unit = " " + noun + "/s"
	}
	switch {
	case rate <= 0 || math.IsNaN(rate):
		return "0" + unit
	case rate < 0.1:
		return "under 0.1" + unit
	case rate < 9.95:
		return strings.TrimSuffix(strconv.FormatFloat(rate, 'f', 1, 64), ".0") + unit
	}
	return text.Grouped(int64(min(rate+0.5, math.MaxInt32))) + unit
}

// Span returns a duration in one or two units, such as "2 h 5 min".
func Span(d time.Duration) string {
	d = max(d, 0).Round(time.Second)
	units := []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}}
	for i, u := range units {
		if d < u.of && i < len(units)-1 {
			continue
		}
		n := d / u.of
		said := text.Grouped(int64(n)) + " " + u.name
		if rest := d % u.of; n < 10 && i < len(units)-1 && rest >= units[i+1].of {
			said += fmt.Sprintf(" %d %s", rest/units[i+1].of, units[i+1].name)
		}
		return said
	}
	return ""
}

// TimeLeft returns an expected duration of the rest, or "" if it is unknown.
func TimeLeft(seconds *float64) string {
	if seconds == nil || math.IsNaN(*seconds) || *seconds < 0 || *seconds > 1e8 {
		return ""
	}
	if *seconds < 1 {
		return "almost done"
	}
	return "about " + Span(time.Duration(*seconds)*time.Second) + " left"
}

// Clock returns the time of a day, such as "17:35" of today or "Tomorrow 17:35".
func Clock(at, now time.Time) string {
	shown := at.Format("15:04")
	if !IsToday(at, now) {
		shown = DayOf(at, now) + " " + shown
	}
	return shown
}

// relative returns an instant relative to now, such as "3 min ago" or "in 2 h". The script of the pages has
// the same units. An instant more than 30 days away is a date.
func relative(at, now time.Time) string {
	d := at.Sub(now)
	away := d.Abs()
	if away < 10*time.Second {
		if d > 0 {
			return "now"
		}
		return "just now"
	}
	said := ""
	for _, u := range []struct {
		below, of time.Duration
		name      string
	}{{90 * time.Second, time.Second, "s"}, {90 * time.Minute, time.Minute, "min"}, {36 * time.Hour, time.Hour, "h"},
		{31 * 24 * time.Hour, 24 * time.Hour, "d"}} {
		if away < u.below {
			said = strconv.FormatInt(int64((away+u.of/2)/u.of), 10) + " " + u.name
			break
		}
	}
	switch {
	case said == "":
		return at.Format("2 Jan 2006")
	case d > 0:
		return "in " + said
	}
	return said + " ago"
}

// When renders an instant relative to now. The exact time is its title, and the script keeps it current.
func When(zone *time.Location, at time.Time) template.HTML {
	if at.IsZero() || at.Year() < 1 || at.Year() > 9999 {
		return ""
	}
	exact := text.Times{Zone: zone}.Clock(at)
	return timeElement(exact, ` title="`+exact+`" data-relative`, relative(In(zone, at), time.Now()))
}

// In returns an instant in a zone. Nil is the server's zone.
func In(zone *time.Location, at time.Time) time.Time {
	if zone == nil {
		return at.Local()
	}
	return at.In(zone)
}

// TimeOfDay renders an instant as the time of a day, such as "17:35" of today or "Yesterday 17:35". The exact time
// is its title.
func TimeOfDay(zone *time.Location, at time.Time) template.HTML {
	exact := text.Times{Zone: zone}.Clock(at)
	return timeElement(exact, ` title="`+exact+`"`, Clock(In(zone, at), time.Now()))
}

// DayOf returns the name of an instant's day for a heading: Yesterday, Today, Tomorrow, or "Mon 30 Nov".
func DayOf(at, now time.Time) string {
	switch daysUntil(at, now) {
	case 0:
		return "Today"
	case 1:
		return "Tomorrow"
	case -1:
		return "Yesterday"
	}
	if at.Year() == now.In(at.Location()).Year() {
		return at.Format("Mon 2 Jan")
	}
	return at.Format("Mon 2 Jan 2006")
}

// IsToday reports whether an instant is on the day of now in its zone.
func IsToday(at, now time.Time) bool { return daysUntil(at, now) == 0 }

// daysUntil returns the number of days from the day of now to the day of an instant, in the instant's zone.
func daysUntil(at, now time.Time) int64 {
	day := func(t time.Time) int64 {
		return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC).Unix() / 86400
	}
	return day(at) - day(now.In(at.Location()))
}

// Repetition returns the repetition of a schedule in words, with the zone of its times.
func Repetition(d schedule.Definition) string {
	words := cronWords(d.Cron, d.Every)
	if d.Cron != "" && d.TimeZone != "" && strings.Contains(words, " at ") {
		words += ", " + d.TimeZone
	}
	return words
}

// cronWords returns the repetition of a schedule in words: "every day at 09:00". An expression that is not
// common is "repeatedly".
func cronWords(cron, every string) string {
	if d, err := time.ParseDuration(every); err == nil {
		return "every " + Span(d)
	}
	if every != "" {
		return "every " + every
	}
	named := map[string]string{"@hourly": "every hour", "@daily": "every day at 00:00", "@midnight": "every day at 00:00",
		"@weekly": "every Sunday at 00:00", "@monthly": "on day 1 of each month at 00:00", "@yearly": "every year", "@annually": "every year"}
	if words, known := named[cron]; known {
		return words
	}
	f := strings.Fields(cron)
	if len(f) != 5 || f[3] != "*" {
		return "repeatedly"
	}
	if step, is := strings.CutPrefix(f[0], "*/"); is && isNumber(step) && f[1] == "*" && f[2] == "*" && f[4] == "*" {
		return "every " + step + " min"
	}
	if !isNumber(f[0]) {
		return "repeatedly"
	}
	minute, _ := strconv.Atoi(f[0])
	if f[1] == "*" && f[2] == "*" && f[4] == "*" {
		return fmt.Sprintf("every hour at :%02d", minute)
	}
	hour, err := strconv.Atoi(f[1])
	if err != nil {
		return "repeatedly"
	}
	at := fmt.Sprintf(" at %02d:%02d", hour, minute)
	days := map[string]string{"*": "every day", "1-5": "every weekday", "MON-FRI": "every weekday", "0": "every Sunday", "7": "every Sunday",
		"1": "every Monday", "2": "every Tuesday", "3": "every Wednesday", "4": "every Thursday", "5": "every Friday", "6": "every Saturday",
		"SUN": "every Sunday", "MON": "every Monday", "TUE": "every Tuesday", "WED": "every Wednesday", "THU": "every Thursday",
		"FRI": "every Friday", "SAT": "every Saturday"}
	switch day, known := days[strings.ToUpper(f[4])]; {
	case known && f[2] == "*":
		return day + at
	case f[4] == "*" && isNumber(f[2]):
		return "on day " + f[2] + " of each month" + at
	}
	return "repeatedly"
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// OrDefault renders an optional setting.
func OrDefault[T any](value *T, otherwise string, render func(T) string) string {
	if value == nil {
		return otherwise
	}
	return render(*value)
}

// Sentence returns text with a capital first letter.
func Sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// Instant renders an instant in a zone. Nil is the server's zone.
func Instant(zone *time.Location, at time.Time) template.HTML {
	exact := text.Times{Zone: zone}.Clock(at)
	return timeElement(exact, "", exact)
}

// timeElement renders an instant as an element with attributes. All of them are digits and words.
func timeElement(exact, attributes, shown string) template.HTML {
	return template.HTML(`<time datetime="` + strings.Replace(exact, " ", "T", 1) + `"` + attributes + `>` + shown + //nolint:gosec // see above
		`</time>`)
}

// Escaped returns text as HTML.
func Escaped(text string) template.HTML {
	return template.HTML(template.HTMLEscapeString(text)) //nolint:gosec // it is escaped
}
