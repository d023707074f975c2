package channels

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// Category has the settings of all messages of a category.
type Category struct {
	Name        string      `json:"name"`
	Description string      `json:"description"`
	Route       []string    `json:"route"`       // media, in the order in which they are tried
	Quiet       *QuietHours `json:"quiet_hours"` // nil means none
	Cap         *Cap        `json:"cap"`         // nil means none
	// MaxRecipients is the default ceiling of jobs, the largest number of rows that each may
	// write. Nil means no ceiling.
	MaxRecipients *int `json:"max_recipients"`
	// ApprovalAbove is the largest number of recipients of a job without the approval of a second
	// person. 0 means that each job needs approval, nil that none does.
	ApprovalAbove *int `json:"approval_above"`
	// ActivitiesPerHour is the largest number of activities that a requester may send in a clock
	// hour if ApprovalAbove is set. Nil means 10, and 0 for roles that may not approve.
	ActivitiesPerHour *int `json:"activities_per_hour"`
	// Version is the id of the newest event of a change of the category, or 0 without one.
	Version int64 `json:"version"`
}

// ResourceVersion returns Version. It makes a Category a versioned result of an operation.
func (c Category) ResourceVersion() (version int64, one bool) { return c.Version, true }

// QuietHours is a time of day without messages, in the channel's time zone. Start and End count from
// midnight, in whole seconds; both are below 24 h, and they differ. If Start is later than End, the time
// extends over midnight.
type QuietHours struct{ Start, End time.Duration }

// Cap limits the messages to a channel to Max within Window.
type Cap struct {
	Max    int           // 1 to 10,000
	Window time.Duration // 1 minute to 366 days, in whole seconds
}

var quietText = regexp.MustCompile(`^([01][0-9]|2[0-4]):([0-5][0-9])(?::([0-5][0-9]))?-([01][0-9]|2[0-4]):([0-5][0-9])(?::([0-5][0-9]))?$`)

// ParseQuietHours reads a text such as 21:00-08:00.
func ParseQuietHours(text string) (QuietHours, error) {
	m := quietText.FindStringSubmatch(strings.TrimSpace(text))
	bad := fmt.Errorf("%q is not allowed; allowed values: two different times of day such as 21:00-08:00", text)
	if m == nil {
		return QuietHours{}, bad
	}
	of := func(parts []string) time.Duration {
		d := time.Duration(0)
		for i, unit := range []time.Duration{time.Hour, time.Minute, time.Second} {
			n, _ := strconv.Atoi(parts[i]) // digits or empty, which is 0
			d += time.Duration(n) * unit
		}
		return d
	}
	h := QuietHours{Start: of(m[1:4]), End: of(m[4:7])}
	if h.Start > 24*time.Hour || h.End > 24*time.Hour {
		return QuietHours{}, bad
	}
	h.Start, h.End = h.Start%(24*time.Hour), h.End%(24*time.Hour) // 24:00 is midnight
	if h.Start == h.End {
		return QuietHours{}, bad
	}
	return h, nil
}

// String returns the text that ParseQuietHours reads.
func (h QuietHours) String() string { return clock(h.Start) + "-" + clock(h.End) }

// MarshalText writes String.
func (h QuietHours) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (h *QuietHours) UnmarshalText(text []byte) (err error) {
	*h, err = ParseQuietHours(string(text))
	return err
}

func clock(d time.Duration) string {
	s := fmt.Sprintf("%02d:%02d", d/time.Hour, d%time.Hour/time.Minute)
	if rest := d % time.Minute / time.Second; rest != 0 {
		s += fmt.Sprintf(":%02d", rest)
	}
	return s
}

// ParseCap reads a text such as 3/24h.
func ParseCap(text string) (Cap, error) {
	bad := fmt.Errorf("%q is not allowed; allowed values: a number of messages from 1 to 10000 and a time from 1m to "+
		"8784h, such as 3/24h", text)
	number, window, found := strings.Cut(strings.TrimSpace(text), "/")
	n, err := strconv.Atoi(number)
	d, err2 := time.ParseDuration(window)
	if !found || err != nil || err2 != nil || n < 1 || n > 10000 || d < time.Minute || d > 8784*time.Hour || d%time.Second != 0 {
		return Cap{}, bad
	}
	return Cap{Max: n, Window: d}, nil
}

// String is a text that ParseCap reads.
func (c Cap) String() string {
	window := c.Window.String()
	if strings.HasSuffix(window, "m0s") {
		window = strings.TrimSuffix(window, "0s")
	}
	if strings.HasSuffix(window, "h0m") {
		window = strings.TrimSuffix(window, "0m")
	}
	return strconv.Itoa(c.Max) + "/" + window
}

// MarshalText writes String.
func (c Cap) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (c *Cap) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCap(string(text))
	return err
}

// CategoryChange specifies the changes of SetCategory. Zero fields change nothing.
type CategoryChange struct {
	Route      []string
	Quiet      *QuietHours
	ClearQuiet bool // no quiet hours; Quiet is ignored
	Cap        *Cap
	ClearCap   bool // no cap; Cap is ignored

	MaxRecipients      *int
	ClearMaxRecipients bool // no ceiling; MaxRecipients is ignored

	ApprovalAbove      *int
	ClearApprovalAbove bool // no job needs approval; ApprovalAbove is ignored

	ActivitiesPerHour      *int
	ClearActivitiesPerHour bool // the default; ActivitiesPerHour is ignored
}

// Categories returns every category by name.
func Categories(ctx context.Context, q Querier) ([]Category, error) {
	list, err := db.Collect(ctx, q, queries.categoryList, nil, scanCategory)
	if err != nil {
		return nil, fmt.Errorf("channels: list categories: %w", Explain(err))
	}
	return list, nil
}

// SetCategory changes one category in a transaction of its own, recorded in
// belfry.events with actor, reason, before and after; a change that changes nothing
// leaves no event. An unknown category is ErrNoCategory, a value that is not allowed
// ErrPreference. A new route holds for jobs and activities that are enqueued from now
// on, a ceiling for jobs likewise, quiet hours and cap for every message that is not sent yet.
func SetCategory(ctx context.Context, on Beginner, name string, change CategoryChange, by By) (c Category, err error) {
	args := pgx.StrictNamedArgs{
		"name": name, "route": change.Route,
		"set_quiet": change.Quiet != nil || change.ClearQuiet, "quiet_start": nil, "quiet_end": nil,
		"set_cap": change.Cap != nil || change.ClearCap, "cap": nil, "cap_window": nil,
		"set_most": change.MaxRecipients != nil || change.ClearMaxRecipients, "max_recipients": nil,
		"set_approval": change.ApprovalAbove != nil || change.ClearApprovalAbove, "approval_above": nil,
		"set_activities": change.ActivitiesPerHour != nil || change.ClearActivitiesPerHour, "activities_per_hour": nil,
	}
	if change.ActivitiesPerHour != nil && !change.ClearActivitiesPerHour {
		args["activities_per_hour"] = *change.ActivitiesPerHour
	}
	if change.MaxRecipients != nil && !change.ClearMaxRecipients {
		args["max_recipients"] = *change.MaxRecipients
	}
	if change.ApprovalAbove != nil && !change.ClearApprovalAbove {
		args["approval_above"] = *change.ApprovalAbove
	}
	if change.Quiet != nil && !change.ClearQuiet {
		args["quiet_start"], args["quiet_end"] = change.Quiet.Start.Seconds(), change.Quiet.End.Seconds()
	}
	if change.Cap != nil && !change.ClearCap {
		args["cap"], args["cap_window"] = change.Cap.Max, change.Cap.Window.Seconds()
	}
	err = pgx.BeginFunc(ctx, on, func(tx pgx.Tx) error {
		if err := by.If.Check(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, queries.actorSet, pgx.StrictNamedArgs{"actor": by.Actor, "reason": by.Reason}); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, queries.categorySet, args); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, queries.categoryGet, pgx.StrictNamedArgs{"name": name}) // with the version that the change made
		if err != nil {
			return err
		}
		c, err = pgx.CollectExactlyOneRow(rows, scanCategory)
		return err
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Category{}, fmt.Errorf("channels: set category %q: %w", name, ErrNoCategory)
	case err != nil:
		return Category{}, fmt.Errorf("channels: set category %q: %w", name, Explain(err))
	}
	return c, nil
}

var categoryName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`) })

// AddCategory creates a category. Zero fields of the change have these defaults: route push, no quiet hours,
// no cap, no ceiling. An existing category is ErrCategoryExists.
func AddCategory(ctx context.Context, on Beginner, name, description string, change CategoryChange, by By) (c Category, err error) {
	if !categoryName().MatchString(name) {
		return c, fmt.Errorf(
			"channels: %w: category: %q is not a name; allowed values: 1 to 63 of a-z, 0-9 and _, starting with a letter", ErrPreference, name)
	}
	err = pgx.BeginFunc(ctx, on, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, queries.categoryAdd, pgx.StrictNamedArgs{"name": name, "description": description}); err != nil {
			return fmt.Errorf("channels: add category %q: %w", name, Explain(err))
		}
		c, err = SetCategory(ctx, tx, name, change, by)
		return err
	})
	return c, err
}

func scanCategory(row pgx.CollectableRow) (c Category, err error) {
	var start, end, window *int64
	var most *int
	if err := row.Scan(&c.Name, &c.Description, &c.Route, &start, &end, &most, &window, &c.MaxRecipients, &c.ApprovalAbove,
		&c.ActivitiesPerHour, &c.Version); err != nil {
		return Category{}, err
	}
	if start != nil && end != nil {
		c.Quiet = &QuietHours{Start: time.Duration(*start) * time.Second, End: time.Duration(*end) * time.Second}
	}
	if most != nil && window != nil {
		c.Cap = &Cap{Max: *most, Window: time.Duration(*window) * time.Second}
	}
	return c, nil
}
