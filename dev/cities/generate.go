package cities

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
)

// Options are the options of Generate. The zero value is valid.
type Options struct {
	// Seed determines the channels: the same seed generates the same channels, and a larger number
	// starts with them.
	Seed uint64
	// JitterM is the standard deviation, in metres, of the distance north and east
	// from the city's centre; 0 means 4,000.
	JitterM float64
	// Subscription returns the address for push of a browser by its external id: JSON without
	// backslashes. Nil means an invented token, as on other platforms.
	Subscription func(externalID string) string
	// Timeout is the deadline of the whole load; 0 means a minute and a tenth of a
	// millisecond for each channel.
	Timeout time.Duration
	// Progress is called after every 10,000 channels and at the end with the number of generated
	// channels, from one goroutine at a time, which is not the caller's.
	Progress func(made int64)
}

// Result is the result of Generate.
type Result struct {
	Channels int64 `json:"channels"`
	// Bulk reports whether the table was empty and was loaded in bulk.
	Bulk bool `json:"bulk"`
}

// errGenerated reports that channels of the seed exist already. Nothing was written.
var errGenerated = errors.New("channels of this seed exist already; choose another seed")

const (
	generateStep = 10000
	// Shares of generated channels, per thousand.
	perMilleInactive = 10
	perMilleUnplaced = 5
	perMilleIOS      = 380
	perMilleAndroid  = 520 // the rest is web
)

// Generate makes n channels at real cities, in proportion to the cities'
// population, and writes them to belfry.channels in one transaction: all or none.
// About 1 % are inactive and 0.5 % have no location. external_id is
// gen-<seed>-<number from 1>. The addresses are invented: the telephone numbers have the
// reserved country code 999.
//
// An empty table is loaded in bulk under an exclusive lock: it is truncated, and its location
// index is dropped and created again. Otherwise the rows are added to the table. errGenerated
// means that the seed was used before; channels.ErrNotOwn that the store's relation is not
// belfry.channels.
func Generate(ctx context.Context, store *channels.Store, on channels.Beginner, n int64, opts Options) (Result, error) {
	if store.Relation() != channels.DefaultRelation {
		return Result{}, fmt.Errorf("channels: generate: %w, and channels.relation is %s", channels.ErrNotOwn, store.Relation())
	}
	if n < 1 {
		return Result{}, fmt.Errorf("channels: generate %d channels; allowed values: 1 and more", n)
	}
	if opts.JitterM == 0 {
		opts.JitterM = 4000
	}
	if opts.Timeout <= 0 {
		opts.Timeout = time.Minute + time.Duration(n)*100*time.Microsecond
	}
	ctx, cancel := context.WithTimeout(ctx, opts.Timeout)
	defer cancel()
	result := Result{Channels: n}
	err := pgx.BeginFunc(ctx, on, func(tx pgx.Tx) error {
		var err error
		result.Bulk, err = load(ctx, tx, newGenerator(n, opts))
		return err
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.ConstraintName == "channels_external_id_key" {
		return Result{}, fmt.Errorf("channels: generate: %w (seed %d)", errGenerated, opts.Seed)
	}
	if err != nil {
		return Result{}, fmt.Errorf("channels: generate: %w", db.Explain(err))
	}
	return result, nil
}

// load copies the rows of the generator, in bulk if possible.
func load(ctx context.Context, tx pgx.Tx, g *generator) (bulk bool, err error) {
	var index *string
	mayRebuild := func() error { return tx.QueryRow(ctx, queries.loadMayRebuild).Scan(&bulk) }
	if err := mayRebuild(); err != nil {
		return false, err
	}
	if bulk {
		// The lock is taken only if the table can be rebuilt, which is checked again under the lock.
		if _, err := tx.Exec(ctx, queries.loadLock); err != nil {
			return false, err
		}
		if err := mayRebuild(); err != nil {
			return false, err
		}
	}
	sql := queries.loadCopy
	if bulk {
		sql = queries.loadCopyFrozen
		if err := tx.QueryRow(ctx, queries.loadIndex).Scan(&index); err != nil {
			return false, err
		}
		if _, err := tx.Exec(ctx, queries.loadEmpty); err != nil {
			return false, err
		}
	}
	if _, err := tx.Conn().PgConn().CopyFrom(ctx, g, sql); err != nil {
		return false, err
	}
	if index != nil {
		if _, err := tx.Exec(ctx, *index); err != nil {
			return false, err
		}
	}
	_, err = tx.Exec(ctx, queries.loadAnalyze)
	return bulk, err
}

// generator is an io.Reader of the rows in COPY's text format.
type generator struct {
	opts   Options
	n      int64
	made   int64
	random *rand.Rand
	atlas  *atlas
	prefix string
	buffer []byte
	unread []byte // of buffer
}

func newGenerator(n int64, opts Options) *generator {
	return &generator{
		opts: opts, n: n, atlas: world(),
		random: rand.New(rand.NewPCG(opts.Seed, 0x62656c667279)), //nolint:gosec // not a secret; the sequence must repeat
		prefix: "gen-" + strconv.FormatUint(opts.Seed, 10) + "-",
	}
}

// Read generates rows on demand.
func (g *generator) Read(p []byte) (int, error) {
	if len(g.unread) == 0 {
		if g.made == g.n {
			return 0, io.EOF
		}
		g.buffer = g.buffer[:0]
		for g.made < g.n && len(g.buffer) < 1<<15 {
			g.appendRow()
			if g.opts.Progress != nil && (g.made%generateStep == 0 || g.made == g.n) {
				g.opts.Progress(g.made)
			}
		}
		g.unread = g.buffer
	}
	copied := copy(p, g.unread)
	g.unread = g.unread[copied:]
	return copied, nil
}

// appendRow generates one channel. Every row draws the same number of random values, so that rows do
// not depend on earlier rows.
func (g *generator) appendRow() {
	g.made++
	city := g.atlas.at(g.random.Int64N(g.atlas.people()))
	place := jitter(city, g.opts.JitterM*g.random.NormFloat64(), g.opts.JitterM*g.random.NormFloat64())
	platform, active, placed := g.random.IntN(1000), g.random.IntN(1000), g.random.IntN(1000)
	token, digits := g.random.Uint64(), g.random.Int64N(1e10)
	ways := customOf(city.Country, city.Longitude)

	id := g.prefix + strconv.FormatInt(g.made, 10)
	push := fmt.Sprintf(`"%016x"`, token)
	b := append(g.buffer, id...)
	switch {
	case platform < perMilleIOS:
		b = append(b, "\tios\t"...)
	case platform < perMilleIOS+perMilleAndroid:
		b = append(b, "\tandroid\t"...)
	default:
		b = append(b, "\tweb\t"...)
		if g.opts.Subscription != nil {
			push = g.opts.Subscription(id)
		}
	}
	b = strconv.AppendBool(b, active >= perMilleInactive)
	if placed >= perMilleUnplaced {
		b = append(b, "\t("...)
		b = strconv.AppendFloat(b, place.Longitude, 'f', 6, 64)
		b = append(b, ',')
		b = strconv.AppendFloat(b, place.Latitude, 'f', 6, 64)
		b = append(b, ")\t"...)
	} else {
		b = append(b, "\t\\N\t"...)
	}
	b = append(b, ways.locale...)
	b = append(b, '\t')
	b = append(b, ways.timeZone...)
	b = fmt.Appendf(b, "\t{\"push\": %s, \"sms\": \"+999%010d\"}\n", push, digits)
	g.buffer = b
}

// jitter moves a city's centre by metres north and east. The poles stop it; the
// 180° meridian is crossed.
func jitter(c City, north, east float64) channels.Point {
	const earthRadiusM = 6371008.8 // mean, as in belfry.distance_m
	const metresPerDegree = earthRadiusM * math.Pi / 180
	lat := max(-90, min(90, c.Latitude+north/metresPerDegree))
	lon := c.Longitude + east/(metresPerDegree*math.Max(0.01, math.Cos(c.Latitude*math.Pi/180)))
	return channels.Point{Latitude: lat, Longitude: lon - 360*math.Round(lon/360)}
}
