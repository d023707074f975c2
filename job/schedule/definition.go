package schedule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
)

// Definition is an operator's definition of a schedule, in the configuration file or to a Store. Durations
// are texts of hours, minutes and seconds such as 45s, 15m or 1h30m.
type Definition struct {
	Name     string   `json:"name" db:"name" mapstructure:"name"`                          // 1 to 63 of a-z, 0-9, _ and -
	Cron     string   `json:"cron,omitempty" db:"cron" mapstructure:"cron"`                // five fields, or @daily and the like
	Every    string   `json:"every,omitempty" db:"every" mapstructure:"every"`             // instead of Cron: 1s to 8784h
	TimeZone string   `json:"time_zone" db:"time_zone" mapstructure:"time_zone"`           // of Cron; empty: UTC
	Template Template `json:"template" db:"template" mapstructure:"template"`              // the job
	Query    string   `json:"query,omitempty" db:"query" mapstructure:"query" mask:"text"` // makes jobs of its rows, or their values
	// QueryTimeout is how long the query may take, 1s to 5m; empty: 10s.
	QueryTimeout string `json:"query_timeout" db:"query_timeout" mapstructure:"query_timeout"`
	// QueryRole is the role that the query runs as; empty: the node's. Who stores the
	// definition has to be able to become it, and so has the node.
	QueryRole string `json:"query_role,omitempty" db:"query_role" mapstructure:"query_role"`

	Missed Policy `json:"missed" db:"missed" mapstructure:"missed"`                   // empty: once
	After  string `json:"missed_after" db:"missed_after" mapstructure:"missed_after"` // later than this is missed: 1s to 744h; empty: 10m
}

// Policy is the treatment of missed occurrences.
type Policy string

// The policies, with the values of schedules.missed.
const (
	Skip Policy = "skip" // drop them
	Once Policy = "once" // one firing stands for all of them
	All  Policy = "all"  // fire each, 100 per tick
)

// Template is the job that an occurrence enqueues, or with several Types the group of jobs. Zero values take
// a job's defaults. With a query, columns of the same names replace the template's values, except Types and
// Values. With Values, the columns are channel_id and value instead, and fill belfry.job_values. Title, Body and the texts of Variants may refer to the channel: see package outbox/compose.
type Template struct {
	Types         []string       `json:"types" mapstructure:"types"`
	Type          string         `json:"type,omitempty" mapstructure:"type"` // one type, instead of Types
	Category      string         `json:"category,omitempty" mapstructure:"category"`
	Title         string         `json:"title,omitempty" mapstructure:"title"`
	Body          string         `json:"body,omitempty" mapstructure:"body" mask:"text"`
	Data          map[string]any `json:"data,omitempty" mapstructure:"data" mask:"text"`
	Variants      map[string]any `json:"variants,omitempty" mapstructure:"variants" mask:"text"` // as jobs.variants
	Route         []string       `json:"route,omitempty" mapstructure:"route"`                   // media in the order of attempts; none: the category's
	Audience      map[string]any `json:"audience,omitempty" mapstructure:"audience" mask:"keys"` // as jobs.audience; none: everyone
	Lane          string         `json:"lane,omitempty" mapstructure:"lane"`
	Priority      int            `json:"priority,omitempty" mapstructure:"priority"`
	MaxRecipients *int           `json:"max_recipients,omitempty" mapstructure:"max_recipients"` // ceiling of each job; none: the category's
	NeedsApproval bool           `json:"needs_approval,omitempty" mapstructure:"needs_approval"` // false: as the category demands
	Values        bool           `json:"values,omitempty" mapstructure:"values"`                 // the query has values of recipients, not jobs
	DeliverAfter  string         `json:"deliver_after,omitempty" mapstructure:"deliver_after"`   // deliver_at, from the occurrence on
	ExpiresAfter  string         `json:"expires_after,omitempty" mapstructure:"expires_after"`   // expires_at, from the occurrence on
}

// UnmarshalJSON reads a template, numbers of any size as they are written. Unknown keys
// are errors.
func (t *Template) UnmarshalJSON(b []byte) error {
	type plain Template
	var read plain
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	d.DisallowUnknownFields()
	if err := d.Decode(&read); err != nil {
		return fmt.Errorf("template: %w", err)
	}
	*t = Template(read)
	return nil
}

const (
	maxEvery  = 366 * 24 * time.Hour
	maxMissed = 31 * 24 * time.Hour
	maxQuery  = 5 * time.Minute
	// variantsWant is what template.variants may be.
	variantsWant = `JSON objects of up to 131072 bytes, as {"ko": {"title": "…", "body": "…"}}`
	cronWants    = "five fields: minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly, @yearly"
)

// cronField is a field of a cron expression: *, values and ranges, with steps. robfig/cron checks the values. The function
// belfry.cron_problem has the same grammar.
const (
	cronPart  = `(\*|([0-9]{1,4}|[A-Za-z]{3})(-([0-9]{1,4}|[A-Za-z]{3}))?)(/[0-9]{1,4})?`
	cronField = cronPart + `(,` + cronPart + `)*`
)

var (
	schedName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`) })
	typeName  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`) })
	cronShape = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(@(hourly|daily|weekly|monthly|yearly)|` + cronField + `( +` + cronField + `){4})$`)
	})
	medium    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9_]{0,30}$`) })
	spanShape = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9]{1,4}h)?([0-9]{1,5}m)?([0-9]{1,6}s)?$`) })
	queryHead = regexp.MustCompile(`(?i)^\s*(select|with|values|table)\b`)
)

// Validate returns all problems, each with its key under prefix, such as schedules[0], or nil. Names that only the
// database knows (job types, categories, media, platforms, segments) and texts that refer to the channel are checked when
// the definition is stored.
func (d Definition) Validate(prefix string) error {
	c := checker{prefix: prefix}
	c.that(schedName().MatchString(d.Name), "name",
		"%q is not a schedule name; allowed values: 1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit", d.Name)
	switch {
	case d.Cron == "" && d.Every == "":
		c.that(false, "cron", "or every is required; allowed values: %s", cronWants)
	case d.Cron != "" && d.Every != "":
		c.that(false, "cron", "and every are both set; set only one")
	}
	zone, err := loadZone(d.zoneName())
	c.that(err == nil && !isZoneFile(d.TimeZone), "time_zone",
		"%q is not a time zone; allowed values: names of the IANA database such as UTC, Asia/Seoul, Europe/Berlin", d.TimeZone)
	if d.Cron != "" && err == nil {
		_, err := parseCron(d.Cron, zone)
		c.that(err == nil, "cron", "%v", err)
	}
	if d.Every != "" {
		c.span("every", d.Every, time.Second, maxEvery)
	}
	switch d.Missed {
	case "", Skip, Once, All:
	default:
		c.that(false, "missed", "%q is not allowed; allowed values: skip, once, all", d.Missed)
	}
	if d.After != "" {
		c.span("missed_after", d.After, time.Second, maxMissed)
	}
	if d.Query != "" {
		c.that(queryHead.MatchString(d.Query), "query",
			"does not begin like a query; allowed values: statements that begin with SELECT, WITH, VALUES or TABLE")
		c.that(len([]rune(d.Query)) <= 10_000, "query", "has %d characters; the maximum is 10000", len([]rune(d.Query)))
	}
	if d.QueryTimeout != "" {
		c.span("query_timeout", d.QueryTimeout, time.Second, maxQuery)
	}
	c.that(d.QueryRole == "" || d.Query != "", "query_role", "is for a schedule with a query; allowed without one is none")
	c.that(len(d.QueryRole) <= 63, "query_role", "has %d bytes; allowed values: names of roles, up to 63", len(d.QueryRole))
	c.that(!d.Template.Values || d.Query != "", "template.values", "is for a schedule with a query; allowed without one is false")
	d.Template.validate(&c, d.Query != "" && !d.Template.Values)
	return errors.Join(c.problems...)
}

func (t Template) validate(c *checker, hasQuery bool) {
	types := t.Types
	switch {
	case t.Type != "" && len(types) > 0:
		c.that(false, "template.types", "and type are both set; set only one")
	case t.Type != "":
		types = []string{t.Type}
	case len(types) == 0:
		c.that(false, "template.types", "is required; allowed values: lists of different job types such as [inbox, push]")
	}
	seen := make(map[string]bool)
	for _, name := range types {
		c.that(typeName().MatchString(name), "template.types",
			"%q is not a job type; allowed values: 1 to 63 of a-z, 0-9 and _, starting with a letter", name)
		c.that(!seen[name], "template.types", "%q is given twice; allowed values: different job types", name)
		seen[name] = true
	}
	c.that(t.Category != "" || hasQuery, "template.category", "is required without a query of jobs; allowed values: the names in belfry.categories")
	length := len([]rune(t.Title))
	c.that(hasQuery && t.Title == "" || strings.TrimSpace(t.Title) != "" && length <= 200, "template.title",
		"has %d characters, or only blanks; allowed values: texts of 1 to 200 characters", length)
	length = len([]rune(t.Body))
	c.that(length <= 10_000, "template.body", "has %d characters; the maximum is 10000", length)
	if text, err := json.Marshal(t.Data); err != nil {
		c.that(false, "template.data", "is not JSON (%v); allowed values: JSON objects of up to 16384 bytes", err)
	} else {
		c.that(len(text) <= 16384, "template.data", "has %d bytes; allowed values: JSON objects of up to 16384 bytes", len(text))
	}
	if text, err := json.Marshal(t.Variants); err != nil {
		c.that(false, "template.variants", "is not JSON (%v); allowed values: %s", err, variantsWant)
	} else {
		c.that(len(text) <= 131072, "template.variants", "has %d bytes; allowed values: %s", len(text), variantsWant)
	}
	t.validateRoute(c)
	if t.Audience != nil {
		text, err := json.Marshal(t.Audience)
		if err == nil {
			_, err = channels.ParseAudience(text)
		}
		c.that(err == nil, "template.audience", "%v", err)
	}
	c.that(t.Lane == "" || schedName().MatchString(t.Lane), "template.lane",
		"%q is not a lane name; allowed values: 1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit", t.Lane)
	c.that(t.Priority >= -1000 && t.Priority <= 1000, "template.priority",
		"%d is not allowed; allowed values: -1000 to 1000, higher is more urgent", t.Priority)
	if n := t.MaxRecipients; n != nil {
		c.that(*n >= 1 && *n <= job.MostRecipients, "template.max_recipients", "%d is not allowed; allowed values: 1 to %d", *n,
			job.MostRecipients)
	}
	if t.DeliverAfter != "" {
		c.span("template.deliver_after", t.DeliverAfter, 0, maxSpan)
	}
	if t.ExpiresAfter != "" {
		c.span("template.expires_after", t.ExpiresAfter, time.Second, maxSpan)
	}
}

func (t Template) validateRoute(c *checker) {
	const want = "1 to 10 different media such as [push, sms], in the order in which they are tried"
	c.that(t.Route == nil || len(t.Route) > 0 && len(t.Route) <= 10, "template.route",
		"has %d media; allowed values: %s, or none of the key", len(t.Route), want)
	for i, name := range t.Route {
		c.that(medium().MatchString(name), "template.route", "%q is not a medium; allowed values: %s", name, want)
		c.that(!slices.Contains(t.Route[:i], name), "template.route", "%q is given twice; allowed values: %s", name, want)
	}
}

// checker collects problems under a prefix.
type checker struct {
	prefix   string
	problems []error
}

func (c *checker) that(ok bool, key, format string, args ...any) {
	if ok {
		return
	}
	if c.prefix != "" {
		key = c.prefix + "." + key
	}
	c.problems = append(c.problems, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
}

func (c *checker) span(key, text string, low, high time.Duration) {
	d, err := parseSpan(text)
	c.that(err == nil, key, "%q is not a duration; allowed values: texts such as 45s, 15m, 1h30m", text)
	c.that(err != nil || d >= low && d <= high, key, "%s is not allowed; allowed values: %s to %s", text, spanText(low), spanText(high))
}

// maxSpan is the longest text that spanShape allows.
const maxSpan = 9999*time.Hour + 99_999*time.Minute + 999_999*time.Second

// parseSpan reads a duration of hours, minutes and seconds.
func parseSpan(text string) (time.Duration, error) {
	if text == "" || !spanShape().MatchString(text) {
		return 0, fmt.Errorf("%q is not a duration; allowed values: texts such as 45s, 15m, 1h30m", text)
	}
	return time.ParseDuration(text)
}

// spanText writes d, of whole seconds, as parseSpan reads it, without zero parts.
func spanText(d time.Duration) string {
	seconds := int64(d / time.Second)
	text := ""
	for _, unit := range []struct {
		size int64
		mark string
	}{{3600, "h"}, {60, "m"}, {1, "s"}} {
		if n := seconds / unit.size; n > 0 {
			text += fmt.Sprintf("%d%s", n, unit.mark)
			seconds -= n * unit.size
		}
	}
	if text == "" {
		return "0s"
	}
	return text
}

// withDefaults returns d with default values, and with durations and types in their stored form. d must be valid.
func (d Definition) withDefaults() Definition {
	d.TimeZone = d.zoneName()
	if d.Missed == "" {
		d.Missed = Once
	}
	if d.After == "" {
		d.After = "10m"
	}
	if d.QueryTimeout == "" {
		d.QueryTimeout = "10s"
	}
	if d.Template.Type != "" {
		d.Template.Types, d.Template.Type = []string{d.Template.Type}, ""
	}
	return d
}

func (d Definition) zoneName() string {
	if d.TimeZone == "" {
		return "UTC"
	}
	return d.TimeZone
}

// next returns the first n occurrences after an instant, fewer when there are none for
// nine years. Intervals count from anchor, which is the created_at of a stored schedule.
func (d Definition) next(anchor, after time.Time, n int) ([]time.Time, error) {
	t, err := d.recurrence(anchor)
	if err != nil {
		return nil, err
	}
	var list []time.Time
	for len(list) < n {
		if after = t.next(after); after.IsZero() {
			break
		}
		list = append(list, after)
	}
	return list, nil
}

// recurrence computes the occurrences of a schedule.
type recurrence interface {
	// next returns the first occurrence after an instant, in UTC, or the zero time when
	// there is none.
	next(after time.Time) time.Time
}

func (d Definition) recurrence(anchor time.Time) (recurrence, error) {
	if d.Cron == "" {
		every, err := parseSpan(d.Every)
		if err == nil && every < time.Second {
			err = fmt.Errorf("%s is not allowed; allowed values: 1s to %s", d.Every, spanText(maxEvery))
		}
		if err != nil {
			return nil, fmt.Errorf("every: %w", err)
		}
		return interval{anchor: anchor.UTC().Truncate(time.Second), every: every}, nil
	}
	zone, err := loadZone(d.zoneName())
	if err != nil {
		return nil, fmt.Errorf("time_zone: %q is not a time zone that this program knows: %w", d.TimeZone, err)
	}
	c, err := parseCron(d.Cron, zone)
	if err != nil {
		return nil, fmt.Errorf("cron: %w", err)
	}
	return c, nil
}

// isZoneFile reports whether the zone database has a file of this name that is no zone of its own.
func isZoneFile(name string) bool {
	switch name {
	case "localtime", "posixrules", "Factory":
		return true
	}
	return strings.HasPrefix(name, "posix/") || strings.HasPrefix(name, "right/")
}

// loadZone is time.LoadLocation without the zone "Local", which depends on the machine.
func loadZone(name string) (*time.Location, error) {
	if name == "Local" || name == "" {
		return nil, fmt.Errorf("%q is not a name of the IANA database", name)
	}
	return time.LoadLocation(name)
}
