package channels

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfryhq/belfry/cursor"
)

// Point is a place in WGS 84 degrees.
type Point struct{ Latitude, Longitude float64 }

// Channel is one recipient as a job type written in Go receives it: active, and
// matching the job's audience when its page was read. As in Recipient, a platform, locale or time zone that is
// too long is "".
type Channel struct {
	ID         int64
	ExternalID string // the service's own user id
	Platform   string
	Location   *Point // nil means unknown
	Locale     string // "" means unknown
	TimeZone   string // "" means unknown
	Attributes json.RawMessage
	Addresses  json.RawMessage // address by medium
}

// route is the way in which a walk finds its next page.
type route int

const (
	byKey     route = iota // in id order over the relation, testing each key
	byList                 // through ids found at Open
	bySegment              // in id order over a segment's members
)

// Walk reads the matching channels of one audience page by page. It holds the
// audience, the bound and, for a radius or a list, the ids found at Open. The caller
// stores the position: every call names the position that it continues after,
// so that a page can be read again after a rollback. A Walk is safe for
// concurrent use. It holds no connection and need not be closed.
type Walk struct {
	store    *Store
	audience Audience
	bound    cursor.Position
	route    route
	ids      []int64 // byList: sorted, without repetition
	total    int64
	boxes    []box

	sliceIDs, pageChannels, sliceChannels, segmentChannels string
}

// Open prepares the walk of the channels of the audience in (after, bound]. A
// zero after is the start; a zero bound an empty walk. A malformed audience is
// ErrAudience; a segment that does not exist is ErrNoSegment.
//
// Open of a circle stops after 262,144 channels in its bounding box, whatever
// the size of the relation. If PostgreSQL prefers a bitmap of the index,
// because the table is not vacuumed yet or the index is on an expression, it first reads
// all index entries of the box.
//
// Resuming is Open with the stored cursor and bound. Open must see all rows
// committed before the bound was read: in a transaction of isolation REPEATABLE
// READ the bound must be from the same or an earlier transaction.
func (s *Store) Open(ctx context.Context, q Querier, a Audience, after, bound cursor.Position) (*Walk, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	low, high, some, err := window(after, bound)
	if err != nil {
		return nil, err
	}
	have, err := s.Columns(ctx, q)
	if err != nil {
		return nil, err
	}
	if err := s.requireColumns(have, a); err != nil {
		return nil, err
	}
	w := &Walk{
		store: s, audience: a, bound: bound,
		sliceIDs:        s.renderOptional(queries.sliceIDs, have),
		pageChannels:    s.renderOptional(queries.pageChannels, have),
		sliceChannels:   s.renderOptional(queries.sliceChannels, have),
		segmentChannels: s.renderOptional(queries.segmentChannels, have),
	}
	if a.Kind == KindRadius {
		w.boxes = boundingBoxes(a.Latitude, a.Longitude, a.RadiusM)
	}
	if !some {
		// The window is empty, but an unknown segment is still an error.
		w.route = byList
		if a.Kind != KindSegment {
			return w, nil
		}
	}
	switch a.Kind {
	case KindEveryone, KindPlatforms:
		err = w.estimate(ctx, q, low, high)
	case KindRadius:
		err = w.openCircle(ctx, q, low, high)
	case KindChannels:
		err = w.openList(ctx, q, low, high)
	case KindSegment:
		err = w.openSegment(ctx, q, low, high, some)
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// requireColumns gives a relation that cannot carry the walk a better error
// than the page statement would.
func (s *Store) requireColumns(have map[string]Column, a Audience) error {
	if len(have) == 0 {
		return fmt.Errorf("%w: %s does not exist", ErrRelation, s.name)
	}
	if _, ok := have["location"]; !ok && a.Kind == KindRadius {
		return fmt.Errorf("%w: %s has no column location, which a radius audience needs", ErrRelation, s.name)
	}
	return nil
}

// estimate sets the total of a walk in id order: the planner's row count, in
// proportion to the part of the id range that is left. Ids are never denser
// than whole numbers, which caps it.
func (w *Walk) estimate(ctx context.Context, q Querier, low, high int64) error {
	s := w.store
	rows, err := plannedRows(q.QueryRow(ctx, s.sql.estimateRows))
	if err != nil {
		return s.wrap("estimate the size", err)
	}
	var lowest int64
	switch err := q.QueryRow(ctx, s.sql.lowestID).Scan(&lowest); {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return s.wrap("read the lowest id", err)
	}
	from := max(low, lowest-1)
	if from >= high || lowest-1 > lowest { // nothing left, or an id at the type's edge
		return nil
	}
	left := float64(high) - float64(from)
	span := float64(high) - float64(lowest) + 1
	w.total = int64(min(left, float64(rows)*left/span))
	return nil
}

// openCircle takes the ids inside the circle from the GiST index when they are
// at most lookAhead; then the walk costs in proportion to its matches. A denser
// circle is walked in id order, where each page is bounded by its keys.
//
// I1 holds for the list too: a channel at or below the bound that matches from
// its commit before the claim until its page is read is in the list, because
// Open ran in between. One that begins to match after Open may be missing, and
// one that ceases to match is found out when its page is read.
func (w *Walk) openCircle(ctx context.Context, q Querier, low, high int64) error {
	s := w.store
	args := w.circleArgs()
	args["after"], args["bound"], args["limit"] = low, high, s.lookAhead+1
	var count int64
	ids, err := queryIDs(ctx, q, s.sql.radiusCandidates, args, &count)
	if err != nil {
		return s.wrap("find the circle's channels", err)
	}
	if count > int64(s.lookAhead) {
		return w.estimate(ctx, q, low, high)
	}
	w.setList(ids)
	return nil
}

// openList turns a list of ids or external ids into the sorted ids to visit.
func (w *Walk) openList(ctx context.Context, q Querier, low, high int64) error {
	if len(w.audience.ExternalIDs) == 0 {
		var ids []int64
		for _, id := range w.audience.IDs {
			if low < id && id <= high {
				ids = append(ids, id)
			}
		}
		w.setList(ids)
		return nil
	}
	ids, err := queryIDs(ctx, q, w.store.sql.resolveExternalIDs, pgx.StrictNamedArgs{
		"external_ids": w.audience.external(), "after": low, "bound": high,
	})
	if err != nil {
		return w.store.wrap("resolve external ids", err)
	}
	w.setList(ids)
	return nil
}

func (w *Walk) setList(ids []int64) {
	slices.Sort(ids)
	w.ids = slices.Compact(ids)
	w.route = byList
	w.total = int64(len(w.ids))
}

// openSegment checks that the segment exists and counts its members: exactly up to the
// walk's limit, by the planner's estimate above it.
func (w *Walk) openSegment(ctx context.Context, q Querier, low, high int64, some bool) error {
	s, name := w.store, w.audience.Segment
	var exists bool
	err := q.QueryRow(ctx, queries.segmentSize, pgx.StrictNamedArgs{
		"segment": name, "after": low, "bound": high, "limit": s.lookAhead + 1,
	}).Scan(&exists, &w.total)
	if err != nil {
		return fmt.Errorf("channels: open segment %q: %w", name, err)
	}
	if !exists {
		return fmt.Errorf("channels: %w: %q", ErrNoSegment, name)
	}
	if !some {
		return nil
	}
	w.route = bySegment
	if w.total > int64(s.lookAhead) {
		rows, err := plannedRows(q.QueryRow(ctx, queries.estimateSegment, pgx.StrictNamedArgs{"segment": name}))
		if err != nil {
			return fmt.Errorf("channels: estimate segment %q: %w", name, err)
		}
		w.total = max(w.total, rows)
	}
	return nil
}

// Total returns how many keys the walk will examine from where it was opened.
// It is exact for a list, for a circle of up to 262,144 channels and a segment
// of as many, and the planner's estimate otherwise: fit for progress, not for
// decisions.
func (w *Walk) Total() int64 {
	return w.total
}

// IDs examines the next keys after the position, at most limit, and returns the
// ids that are active and match, ascending. The slice is the caller's. Read 0
// means that the walk is exhausted; a page without rows does not.
func (w *Walk) IDs(ctx context.Context, q Querier, after cursor.Position, limit int) (cursor.Page[int64], error) {
	var page cursor.Page[int64]
	low, high, some, err := w.pageWindow(after, limit)
	if err != nil || !some {
		return page, err
	}
	if w.route == byList {
		slice := w.slice(low, limit)
		if len(slice) == 0 {
			return page, nil
		}
		args := w.filterArgs()
		args["ids"] = slice
		page.Rows, err = queryIDs(ctx, q, w.sliceIDs, args)
		if err != nil {
			return cursor.Page[int64]{}, w.store.wrap("read a page", err)
		}
		page.Read, page.Next = len(slice), cursor.Int64(slice[len(slice)-1])
		return page, nil
	}
	sql, args := w.pageStatement()
	args["after"], args["bound"], args["limit"] = low, high, limit
	page, err = queryPage(ctx, q, sql, args)
	if err != nil {
		return cursor.Page[int64]{}, w.store.wrap("read a page", err)
	}
	return page, nil
}

// Channels is IDs with the data of each channel.
func (w *Walk) Channels(ctx context.Context, q Querier, after cursor.Position, limit int) (cursor.Page[Channel], error) {
	var page cursor.Page[Channel]
	low, high, some, err := w.pageWindow(after, limit)
	if err != nil || !some {
		return page, err
	}
	args := w.filterArgs()
	sql := w.pageChannels
	switch w.route {
	case byList:
		slice := w.slice(low, limit)
		if len(slice) == 0 {
			return page, nil
		}
		sql, args["ids"] = w.sliceChannels, slice
		page.Read, page.Next = len(slice), cursor.Int64(slice[len(slice)-1])
	case bySegment:
		sql = w.segmentChannels
		args = pgx.StrictNamedArgs{
			"segment": w.audience.Segment, "platforms": w.platforms(), "after": low, "bound": high, "limit": limit,
		}
	case byKey:
		args["after"], args["bound"], args["limit"] = low, high, limit
	}
	rows, err := q.Query(ctx, sql, args)
	if err != nil {
		return cursor.Page[Channel]{}, w.store.wrap("read a page", err)
	}
	examined, last, matching, err := scanChannels(rows, limit)
	if err != nil {
		return cursor.Page[Channel]{}, w.store.wrap("read a page", err)
	}
	page.Rows = matching
	if w.route != byList && examined > 0 {
		page.Read, page.Next = examined, cursor.Int64(last)
	}
	return page, nil
}

// pageWindow is window with the checks of a page.
func (w *Walk) pageWindow(after cursor.Position, limit int) (low, high int64, some bool, err error) {
	if limit < 1 {
		return 0, 0, false, fmt.Errorf("channels: a page of %d keys; allowed values: 1 and more", limit)
	}
	return window(after, w.bound)
}

// slice returns the next ids of the list after low.
func (w *Walk) slice(low int64, limit int) []int64 {
	from, found := slices.BinarySearch(w.ids, low)
	if found {
		from++
	}
	return w.ids[from:min(from+limit, len(w.ids))]
}

// pageStatement picks the statement of a walk in key order.
func (w *Walk) pageStatement() (string, pgx.StrictNamedArgs) {
	s, a := w.store, w.audience
	switch {
	case w.route == bySegment:
		return s.sql.segmentIDs, pgx.StrictNamedArgs{"segment": a.Segment, "platforms": w.platforms()}
	case a.Kind == KindRadius:
		return s.sql.pageRadius, w.filterArgs()
	case a.Kind == KindPlatforms:
		return s.sql.pagePlatforms, pgx.StrictNamedArgs{"platforms": a.Platforms}
	}
	return s.sql.pageEveryone, pgx.StrictNamedArgs{}
}

// platforms are those the audience narrows to; nil, and so NULL, for any.
func (w *Walk) platforms() []string {
	if len(w.audience.Platforms) == 0 {
		return nil
	}
	return w.audience.Platforms
}

// filterArgs are the arguments of the statements that serve several kinds.
func (w *Walk) filterArgs() pgx.StrictNamedArgs {
	args := w.circleArgs()
	args["platforms"] = w.platforms()
	return args
}

// circleArgs are the arguments of the statements on a circle, NULL when the
// audience is none.
func (w *Walk) circleArgs() pgx.StrictNamedArgs {
	return circleArgs(w.audience, w.boxes)
}

func circleArgs(a Audience, boxes []box) pgx.StrictNamedArgs {
	args := pgx.StrictNamedArgs{"center": pgtype.Point{}, "radius_m": nil, "box_1": pgtype.Box{}, "box_2": pgtype.Box{}}
	if a.Kind != KindRadius {
		return args
	}
	args["center"] = pgtype.Point{P: pgtype.Vec2{X: a.Longitude, Y: a.Latitude}, Valid: true}
	args["radius_m"] = a.RadiusM
	args["box_1"] = boxes[0].postgres()
	if len(boxes) > 1 {
		args["box_2"] = boxes[1].postgres()
	}
	return args
}

// queryPage reads the one row of a page statement.
func queryPage(ctx context.Context, q Querier, sql string, args pgx.StrictNamedArgs) (cursor.Page[int64], error) {
	var page cursor.Page[int64]
	var last *int64
	ids, err := queryIDs(ctx, q, sql, args, &page.Read, &last)
	if err != nil || last == nil {
		return cursor.Page[int64]{}, err
	}
	page.Rows, page.Next = ids, cursor.Int64(*last)
	return page, nil
}

// queryIDs reads one row whose last column is a bigint[] without NULLs, and
// scans the columns before it into leading. The ids are ascending if the array
// is: the statements aggregate rows that arrive in id order, which PostgreSQL
// keeps but does not promise, so it is checked; that costs nothing beside
// reading them.
func queryIDs(ctx context.Context, q Querier, sql string, args pgx.StrictNamedArgs, leading ...any) ([]int64, error) {
	rows, err := q.Query(ctx, sql, args)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) ([]int64, error) {
		var ids []int64
		last := len(leading)
		if row.FieldDescriptions()[last].Format != pgx.BinaryFormatCode {
			return ids, row.Scan(append(leading, &ids)...) // simple protocol
		}
		if err := row.Scan(append(leading, nil)...); err != nil {
			return nil, err
		}
		return decodeIDs(row.RawValues()[last])
	})
	if err != nil {
		return nil, err
	}
	if !slices.IsSorted(ids) {
		slices.Sort(ids)
	}
	return ids, nil
}

// scanChannels reads the rows of a Channels statement: those that match are
// returned, and every row counts as examined.
func scanChannels(rows pgx.Rows, limit int) (examined int, last int64, matching []Channel, err error) {
	var (
		matches                              bool
		external, platform, locale, timeZone *string
		location                             pgtype.Point
		attributes, addresses                json.RawMessage
	)
	matching = make([]Channel, 0, min(limit, 1024))
	targets := []any{&last, &matches, &external, &platform, &location, &locale, &timeZone, &attributes, &addresses}
	_, err = pgx.ForEachRow(rows, targets, func() error {
		examined++
		if !matches {
			return nil
		}
		c := Channel{
			ID: last, ExternalID: textOf(external), Platform: atMost(textOf(platform), longestPlatform),
			Locale: atMost(textOf(locale), LongestLocale), TimeZone: atMost(textOf(timeZone), LongestTimeZone),
			Attributes: object(attributes), Addresses: object(addresses),
		}
		if location.Valid {
			c.Location = &Point{Latitude: location.P.Y, Longitude: location.P.X}
		}
		matching = append(matching, c)
		return nil
	})
	return examined, last, matching, err
}

// text and object read NULL, which a user's own relation may hold, as empty.
func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func object(b json.RawMessage) json.RawMessage {
	if len(b) == 0 {
		return json.RawMessage("{}")
	}
	return slices.Clone(b) // the scan target is used again for the next row
}

var errArray = errors.New("malformed bigint[] from the server")

// decodeIDs decodes a bigint[] without NULLs in the binary format: dimensions,
// flags, element type; length and lower bound of the one dimension; then four
// bytes of length and eight of value for each element. pgx would go through a
// scan plan for each element.
func decodeIDs(src []byte) ([]int64, error) {
	if src == nil || (len(src) == 12 && binary.BigEndian.Uint32(src) == 0) {
		return nil, nil
	}
	if len(src) < 20 || binary.BigEndian.Uint32(src) != 1 {
		return nil, errArray
	}
	n := int(binary.BigEndian.Uint32(src[12:]))
	src = src[20:]
	if len(src) != 12*n {
		return nil, errArray
	}
	ids := make([]int64, n)
	for i := range ids {
		e := src[12*i : 12*i+12 : 12*i+12]
		if binary.BigEndian.Uint32(e) != 8 {
			return nil, errArray
		}
		ids[i] = int64(binary.BigEndian.Uint64(e[4:])) //nolint:gosec // the server sends two's complement
	}
	return ids, nil
}
