package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
)

// statementTime is the deadline of a statement, including the wait for a connection.
const statementTime = 5 * time.Second

// DB is a pool, a connection or a transaction.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Store reads and changes notification centres. Its database role needs the profile inbox. Each method acts on the
// channel that the caller passes: the caller authenticates the reader.
type Store struct{ db DB }

// NewStore returns a Store on a database.
func NewStore(on DB) *Store { return &Store{on} }

// Notification is an entry of a notification centre.
type Notification struct {
	ID       int64           `json:"id" db:"id" doc:"its place in the list: newer notifications have larger ids"`
	At       time.Time       `json:"at" db:"at"`
	Category string          `json:"category" db:"category"`
	Title    string          `json:"title" db:"title" doc:"text, not HTML"`
	Body     string          `json:"body" db:"body" doc:"text, not HTML"`
	Data     json.RawMessage `json:"data" db:"data" doc:"the data of the notification, a JSON object"`
	Seen     bool            `json:"seen" db:"seen"`
	Read     bool            `json:"read" db:"read"`
	Count    int             `json:"count" db:"count" doc:"how many notifications it stands for, by a collapse key; 1: itself"`
}

// Counts are the counts among the newest 100 notifications; 100 means 100 or more.
type Counts struct {
	Unread int `json:"unread" db:"unread" maximum:"100" doc:"100 means 100 or more; show it as 99+"`
	Unseen int `json:"unseen" db:"unseen" maximum:"100" doc:"as unread: since the list was opened"`
}

// Page selects notifications.
type Page struct {
	Before   int64  // an id: the newest notifications before it. 0 means the newest.
	Limit    int    // 1 to 100
	Archived bool   // archived notifications instead of the list
	Locale   string // of titles and bodies; empty means the locale in belfry.channels
}

// Preference is the choice of a reader for a category and a medium. channels.Any stands for all of them; with it as
// medium, the notification centre leaves the category out, too.
type Preference struct {
	Category string `json:"category" db:"category" maxLength:"63" doc:"* means every category"`
	Medium   string `json:"medium" db:"medium" maxLength:"31" doc:"* means every medium and the notification centre"`
	OptedOut bool   `json:"opted_out" db:"opted_out" doc:"there is an opt-out of exactly this category and medium"`
}

// Effective is a Preference with its effect.
type Effective struct {
	Preference

	Receives bool `json:"receives" db:"receives" doc:"no opt-out covers the category and medium, including those with *"`
}

// Page returns a page of a channel's notifications, newest first, and Before of the next page, or 0 if there is none. A
// page that passes many notifications of categories that the reader has left may be short or empty.
func (s *Store) Page(ctx context.Context, channelID int64, p Page) (list []Notification, next int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	args := pgx.StrictNamedArgs{"channel_id": channelID, "before": p.Before, "limit": p.Limit, "archived": p.Archived, "locale": p.Locale}
	list, err = db.All[Notification](ctx, s.db, queries.inboxPage, args)
	for i := range list {
		list[i].At = list[i].At.UTC()
	}
	if n := len(list); n > 0 && list[n-1].Count == 0 {
		list, next = list[:n-1], list[n-1].ID
	} else if n > 0 && n == p.Limit {
		next = list[n-1].ID
	}
	return list, next, wrap("read a page", err)
}

// Counts returns the counts of a channel's notifications.
func (s *Store) Counts(ctx context.Context, channelID int64) (Counts, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	c, err := db.One[Counts](ctx, s.db, queries.inboxCounts, pgx.StrictNamedArgs{"channel_id": channelID})
	return c, wrap("count", err)
}

// MarkSeen records that the channel's list was opened.
func (s *Store) MarkSeen(ctx context.Context, channelID int64) error {
	return s.exec(ctx, "mark as seen", queries.inboxSeen, pgx.StrictNamedArgs{"channel_id": channelID})
}

// MarkRead marks up to 100 notifications of a channel as read or unread. Unknown ids have no effect.
func (s *Store) MarkRead(ctx context.Context, channelID int64, ids []int64, read bool) error {
	return s.exec(ctx, "mark as read", queries.inboxRead, pgx.StrictNamedArgs{"channel_id": channelID, "ids": ids, "read": read})
}

// MarkAllRead marks all notifications of a channel as read.
func (s *Store) MarkAllRead(ctx context.Context, channelID int64) error {
	return s.exec(ctx, "mark all as read", queries.inboxReadAll, pgx.StrictNamedArgs{"channel_id": channelID})
}

// Archive moves up to 100 notifications of a channel to the archive, or back. Unknown ids have no effect.
func (s *Store) Archive(ctx context.Context, channelID int64, ids []int64, archived bool) error {
	return s.exec(ctx, "archive", queries.inboxArchive, pgx.StrictNamedArgs{"channel_id": channelID, "ids": ids, "archived": archived})
}

// Preferences returns every combination of category and medium.
func (s *Store) Preferences(ctx context.Context, channelID int64) ([]Effective, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	list, err := db.All[Effective](ctx, s.db, queries.inboxPreferences, pgx.StrictNamedArgs{"channel_id": channelID})
	return list, wrap("read preferences", err)
}

// SetPreferences records the opt-outs in list and deletes the others in it, all or none. Combinations that are not in
// list stay. An unknown category or medium of an opt-out is channels.ErrPreference.
func (s *Store) SetPreferences(ctx context.Context, channelID int64, list []Preference) error {
	var categories, media []string
	var out []bool
	for _, p := range list {
		categories, media, out = append(categories, p.Category), append(media, p.Medium), append(out, p.OptedOut)
	}
	return s.exec(ctx, "set preferences", queries.inboxPrefer,
		pgx.StrictNamedArgs{"channel_id": channelID, "categories": categories, "media": media, "opted_out": out})
}

// ChannelID returns the id of the channel with an external id, or channels.ErrNoChannel. The role also needs SELECT on
// belfry.recipients and on the columns id and external_id of the relation of recipients.
func (s *Store) ChannelID(ctx context.Context, externalID string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	ids, err := db.Column[int64](ctx, s.db, queries.channelID, pgx.StrictNamedArgs{"external_id": externalID})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.ColumnName == "external_id" {
		return 0, fmt.Errorf("%w: %w", channels.ErrNoChannel, err)
	}
	if err != nil {
		return 0, wrap("find the channel", err)
	}
	return ids[0], nil // the function returns one row
}

func (s *Store) exec(ctx context.Context, operation, sql string, args pgx.StrictNamedArgs) error {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	_, err := s.db.Exec(ctx, sql, args)
	return wrap(operation, err)
}

func wrap(operation string, err error) error {
	if err != nil {
		err = fmt.Errorf("inbox: %s: %w", operation, channels.Explain(err))
	}
	return err
}
