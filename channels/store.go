package channels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/cursor"
	"github.com/belfryhq/belfry/internal/db"
)

// DefaultRelation is belfry's own table of channels.
const DefaultRelation = "belfry.channels"

// lookAhead is the largest number of ids of a radius audience that a walk holds: 262,144
// of 8 bytes are 2 MiB.
const lookAhead = 1 << 18

// Config is the settings of the package.
type Config struct {
	// Relation is the table or view that jobs walk: a SQL identifier or two joined
	// by a dot (schema.relation). Names are taken as written, upper case included,
	// with or without double quotes; other characters than letters, digits, _ and $
	// need the quotes. Without a schema it is in public. See
	// the package comment for its contract.
	Relation string
}

// DefaultConfig walks belfry.channels.
func DefaultConfig() Config {
	return Config{Relation: DefaultRelation}
}

var relationName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`^(?:([A-Za-z_][A-Za-z0-9_$]{0,62}|"(?:[^"{}\x00]|""){1,63}")\.)?([A-Za-z_][A-Za-z0-9_$]{0,62}|"(?:[^"{}\x00]|""){1,63}")$`)
})

// Unquoted returns a name without the double quotes of SQL around it.
func Unquoted(name string) string {
	inner, ok := strings.CutPrefix(name, `"`)
	if !ok || len(name) < 3 || !strings.HasSuffix(inner, `"`) {
		return name
	}
	return strings.ReplaceAll(strings.TrimSuffix(inner, `"`), `""`, `"`)
}

// Identifier returns the schema, public if Relation has none, and the name of the relation. Relation must
// be valid.
func (c Config) Identifier() (parts pgx.Identifier) {
	for _, name := range relationName().FindStringSubmatch(c.Relation)[1:] {
		if name != "" {
			parts = append(parts, Unquoted(name))
		}
	}
	if len(parts) == 1 {
		parts = slices.Insert(parts, 0, "public")
	}
	return parts
}

// Validate returns an error that names the key of each bad setting.
func (c Config) Validate() error {
	if !relationName().MatchString(c.Relation) {
		return fmt.Errorf(
			"channels.relation: %q is not allowed; allowed values: a table or view as name or schema.name, of letters, digits, _ "+
				"and $, or in double quotes (default %s)",
			c.Relation, DefaultRelation)
	}
	return nil
}

// Querier runs the package's reading statements. A *pgxpool.Pool, a *pgx.Conn
// and a pgx.Tx are Queriers; inside a transaction the package sees what that
// transaction sees. Every method of this package that takes a Querier expects a
// deadline in its context.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Beginner starts transactions: a *pgxpool.Pool or a *pgx.Conn.
type Beginner interface {
	Querier
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Store reads and writes the channels of one relation. It holds no connection
// and no state, and is safe for concurrent use.
type Store struct {
	relation  string // quoted
	name      string // as configured
	lookAhead int
	sql       statements
}

// statements are the texts that depend on the relation only.
type statements struct {
	bound, lowestID, estimateRows                          string
	pageEveryone, pagePlatforms, pageRadius, segmentIDs    string
	radiusCandidates, resolveExternalIDs                   string
	countEveryone, countRadius, countIDs, countExternalIDs string
	countSegment, recipients, recipientsRange              string
}

// New returns a Store on the configured relation. It does not read the
// database; Check does.
func New(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	parts := cfg.Identifier()
	s := &Store{
		relation:  parts.Sanitize(),
		name:      cfg.Relation,
		lookAhead: lookAhead,
	}
	if plain := strings.Join(parts, "."); plain == DefaultRelation {
		s.name = plain
	}
	s.sql = statements{
		bound:              s.render(queries.bound),
		lowestID:           s.render(queries.lowestID),
		estimateRows:       s.render(queries.estimateRows),
		pageEveryone:       s.render(queries.pageEveryone),
		pagePlatforms:      s.render(queries.pagePlatforms),
		pageRadius:         s.render(queries.pageRadius),
		segmentIDs:         s.render(queries.segmentIDs),
		radiusCandidates:   s.render(queries.radiusCandidates),
		resolveExternalIDs: s.render(queries.resolveExternalIDs),
		countEveryone:      s.render(queries.countEveryone),
		countRadius:        s.render(queries.countRadius),
		countIDs:           s.render(queries.countIDs),
		countExternalIDs:   s.render(queries.countExternalIDs),
		countSegment:       s.render(queries.countSegment),
		recipients:         s.renderOptional(queries.recipients, everyColumn()),
		recipientsRange:    s.renderOptional(queries.recipientsRange, everyColumn()),
	}
	return s, nil
}

func (s *Store) render(sql string) string {
	return strings.ReplaceAll(sql, "{{relation}}", s.relation)
}

// Relation returns the name of the relation as configured.
func (s *Store) Relation() string {
	return s.name
}

// Bound returns the highest id now, of an active channel or not, and the zero
// Position when the relation is empty. A job freezes it at its first claim, in
// a transaction that began after the commits that it must cover.
func (s *Store) Bound(ctx context.Context, q Querier) (cursor.Position, error) {
	var id int64
	switch err := q.QueryRow(ctx, s.sql.bound).Scan(&id); {
	case errors.Is(err, pgx.ErrNoRows):
		return cursor.Position{}, nil
	case err != nil:
		return cursor.Position{}, s.wrap("read the bound", err)
	}
	return cursor.Int64(id), nil
}

// Column is one column of a relation in the catalog.
type Column struct {
	Name, Type string
	NotNull    bool
	Virtual    bool // generated, and computed when it is read
}

// The longest texts that belfry.channels accepts, in characters (its CHECKs). Another relation may have longer
// ones: its statements cut them to one character more, and reading them drops what was cut (see atMost).
const (
	LongestLocale   = 35
	LongestTimeZone = 64
	longestPlatform = 32
)

// longestAddresses is the largest number of bytes of the addresses of a channel, which no CHECK limits.
const longestAddresses = 64 << 10

// atMost returns a text of at most longest characters, and nothing in place of a longer one.
func atMost[T string | []byte](text T, longest int) (_ T) {
	if len(text) > longest && utf8.RuneCountInString(string(text)) > longest {
		return
	}
	return text
}

// optional lists the optional columns and the expressions that replace missing ones.
var optional = []struct{ name, empty string }{
	{"location", "NULL::point"},
	{"locale", "''::text"},
	{"time_zone", "''::text"},
	{"attributes", "'{}'::jsonb"},
	{"addresses", "'{}'::jsonb"},
}

// everyColumn returns the optional columns of belfry.channels.
func everyColumn() map[string]Column {
	have := make(map[string]Column)
	for _, o := range optional {
		have[o.name] = Column{Name: o.name}
	}
	return have
}

// Columns returns the columns of the relation by name.
func (s *Store) Columns(ctx context.Context, q Querier) (map[string]Column, error) {
	found := make(map[string]Column)
	var c Column
	scans := []any{&c.Name, &c.Type, &c.NotNull, &c.Virtual}
	err := db.Each(ctx, q, queries.relationColumns, pgx.StrictNamedArgs{"relation": s.relation}, scans, func() error {
		found[c.Name] = c
		return nil
	})
	if err != nil {
		return nil, s.wrap("read the columns", err)
	}
	return found, nil
}

// renderOptional also replaces the markers of the platform and of the optional columns.
func (s *Store) renderOptional(sql string, have map[string]Column) string {
	sql = strings.ReplaceAll(s.render(sql), "{{platform}}", s.column("platform"))
	for _, o := range optional {
		expression := o.empty
		if _, ok := have[o.name]; ok {
			expression = s.column(o.name)
		}
		sql = strings.ReplaceAll(sql, "{{"+o.name+"}}", expression)
	}
	return sql
}

// column returns the expression of a column. It cuts long texts, except those of belfry.channels, which has none.
func (s *Store) column(name string) string {
	longest := map[string]int{"platform": longestPlatform, "locale": LongestLocale, "time_zone": LongestTimeZone}[name]
	if longest == 0 || s.name == DefaultRelation {
		return "c." + name
	}
	return fmt.Sprintf("left(c.%s::text, %d)", name, longest+1)
}

// window turns positions into the half-open interval (low, high] of ids. ok is
// false when no id can lie in it.
func window(after, bound cursor.Position) (low, high int64, ok bool, err error) {
	low = math.MinInt64
	if !after.IsZero() {
		if low, ok = after.Int64(); !ok {
			return 0, 0, false, fmt.Errorf("channels: cursor %v is not the key of a channel: one bigint", after.Values())
		}
	}
	if bound.IsZero() {
		return low, low, false, nil
	}
	if high, ok = bound.Int64(); !ok {
		return 0, 0, false, fmt.Errorf("channels: bound %v is not the key of a channel: one bigint", bound.Values())
	}
	return low, high, low < high, nil
}

// Estimate returns the planner's estimate of the number of channels. It is suitable for progress, not for
// decisions.
func (s *Store) Estimate(ctx context.Context, q Querier) (int64, error) {
	rows, err := plannedRows(q.QueryRow(ctx, s.sql.estimateRows))
	if err != nil {
		return 0, s.wrap("estimate the size", err)
	}
	return rows, nil
}

// plannedRows reads the planner's row estimate from one EXPLAIN (FORMAT JSON).
func plannedRows(row pgx.Row) (int64, error) {
	var text []byte
	if err := row.Scan(&text); err != nil {
		return 0, err
	}
	var plan []struct {
		Plan struct {
			Rows float64 `json:"Plan Rows"`
		}
	}
	if err := json.Unmarshal(text, &plan); err != nil {
		return 0, fmt.Errorf("decode plan: %w", err)
	}
	if len(plan) == 0 {
		return 0, nil
	}
	return int64(plan[0].Plan.Rows), nil
}
