package live

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/outbox/inbox"
)

const (
	// maxRows is the number of arrivals of a poll, and of numbers below the newest arrival that a start reads to find
	// transactions that have not committed.
	maxRows = 4000
	// maxPolls is the number of polls of a cycle.
	maxPolls = 50
	// maxEntries is the number of notifications of a poll that are sent with their content.
	maxEntries = 200
	// entryBatch is the number of notifications that one statement reads in entryTime.
	entryBatch = 50
	entryTime  = time.Second
	// cycleTime bounds a cycle.
	cycleTime = 10 * time.Second
	// fenceEvery is the shortest time between two transaction ids that the feed draws.
	fenceEvery = 100 * time.Millisecond
)

// Intervals of polls.
const (
	hotEvery   = 25 * time.Millisecond  // after a wake
	busyEvery  = 250 * time.Millisecond // while a job runs or a transaction is awaited
	quietEvery = time.Second
	hotFor     = 250 * time.Millisecond // until transactions of the same moment as the wake have committed
	restAfter  = time.Minute            // without connections
)

// arrivalRow is a row of ArrivalList. Only the row of arrival 0 has Settled and Server.
type arrivalRow struct {
	Arrival   int64
	ChannelID int64
	Walks     bool
	Settled   int64
	Server    float64
}

// feed follows the database. Only the goroutine of Run uses it.
type feed struct {
	arrivals arrivals
	server   float64 // its start; 0: none was polled
	fenced   time.Time
	again    bool      // another server answers: begin again, and have clients reload
	walked   time.Time // the last poll of jobs
	at       int64     // its time in the database's clock
	pending  []advance // whose channels were not read yet
	events   map[int64][][]byte
}

// cycle polls the two sources and publishes the result. After an error the next cycle continues.
func (s *Server) cycle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cycleTime)
	defer cancel()
	if s.feed.server == 0 || s.feed.again {
		if err := s.baseline(ctx); err != nil {
			return err
		}
	}
	for range maxPolls { // events of others wait for the last one
		more, err := s.pollArrivals(ctx)
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	if s.feed.again {
		return nil
	}
	if err := s.pollWalks(ctx); err != nil {
		return err
	}
	s.hub.publish(s.feed.events, position{s.feed.arrivals.low(), s.feed.at})
	s.feed.events = make(map[int64][][]byte)
	return nil
}

// baseline begins at the present state of the database, which clients read by themselves.
func (s *Server) baseline(ctx context.Context) error {
	f := &feed{events: make(map[int64][][]byte)}
	rows, err := s.listArrivals(ctx, nil, nil)
	if err != nil {
		return err
	}
	if len(rows) > 1 {
		f.arrivals.highest = max(rows[len(rows)-1].Arrival-maxRows, 0)
		f.arrivals.add(numbersOf(rows[1:]), nil, 0)
	}
	walks, now, err := s.listWalks(ctx, nil, maxAge+slack)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.walks.baseline(walks, now)
	s.mu.Unlock()
	f.server, f.at, f.walked = rows[0].Server, now.Unix(), time.Now()
	again := s.feed.again
	s.feed = f
	s.hub.begin(position{f.arrivals.low(), f.at})
	if again {
		s.hub.all(open)
	}
	return nil
}

// pollArrivals reads new arrivals. It reports whether there may be more.
func (s *Server) pollArrivals(ctx context.Context) (more bool, err error) {
	f := s.feed
	probes := f.arrivals.probes()
	rows, err := s.listArrivals(ctx, &f.arrivals.highest, probes)
	if err != nil {
		return false, err
	}
	if rows[0].Server != f.server { // its last transactions may be lost, and their numbers drawn again
		f.again = true
		return false, nil
	}
	settled, rows, awaited := rows[0].Settled, rows[1:], f.arrivals.awaited()
	if f.arrivals.add(numbersOf(rows), probes, settled) {
		s.log.Warn().Msg("too many transactions with notifications are open; all streams get a reload")
		s.hub.all(open)
	}
	var channels, numbers []int64
	s.mu.Lock()
	for _, r := range rows {
		if r.Walks {
			s.walks.fresh[r.Arrival] = true
		}
		if r.ChannelID != 0 {
			channels, numbers = append(channels, r.ChannelID), append(numbers, r.Arrival)
		}
	}
	s.mu.Unlock()
	if f.arrivals.unfenced() && time.Since(f.fenced) >= fenceEvery {
		id, err := db.Column[int64](ctx, s.pool, queries.transactionID)
		if err != nil {
			return false, err
		}
		f.arrivals.setFence(id[0])
		f.fenced = time.Now()
	}
	s.announce(ctx, channels, numbers)
	// A block of awaited arrivals ends in several polls.
	return len(rows) >= maxRows || len(probes) == maxProbes && f.arrivals.awaited() < awaited, nil
}

// announce adds the events of single notifications of connected channels.
func (s *Server) announce(ctx context.Context, channels, numbers []int64) {
	connected := make(map[int64]bool)
	for _, id := range s.hub.connected(channels) {
		connected[id] = true
	}
	var to, of []int64
	for i, id := range channels {
		if connected[id] {
			to, of = append(to, id), append(of, numbers[i])
		}
	}
	for i := maxEntries; i < len(to); i++ {
		s.feed.events[to[i]] = append(s.feed.events[to[i]], newEvent(of[i]))
	}
	for i := 0; i < min(len(to), maxEntries); i += entryBatch {
		end := min(i+entryBatch, len(to), maxEntries)
		if err := s.announceEntries(ctx, to[i:end], of[i:end]); err != nil { // the arrivals are not polled again
			s.log.Warn().Err(err).Msg("cannot read notifications; streams get their ids")
			for n := i; n < end; n++ {
				s.feed.events[to[n]] = append(s.feed.events[to[n]], newEvent(of[n]))
			}
		}
	}
}

// announceEntries adds the events of a batch with their content, all or none.
func (s *Server) announceEntries(ctx context.Context, to, of []int64) error {
	ctx, cancel := context.WithTimeout(ctx, entryTime)
	defer cancel()
	type row struct {
		N int64
		inbox.Notification
	}
	list, err := db.All[row](ctx, s.pool, queries.entryList, pgx.StrictNamedArgs{"channels": to, "arrivals": of})
	if err != nil {
		return err
	}
	for _, r := range list {
		r.At = r.At.UTC()
		text, err := json.Marshal(message{Type: "new", ID: r.ID, Notification: &r.Notification})
		if err != nil {
			return err
		}
		s.feed.events[to[r.N-1]] = append(s.feed.events[to[r.N-1]], text)
	}
	return nil
}

// pollWalks reads the progress of jobs, and which connected channels they have reached.
func (s *Server) pollWalks(ctx context.Context) error {
	f := s.feed
	s.mu.Lock()
	every := quietEvery
	if s.walks.running() {
		every = busyEvery
	}
	due := len(s.walks.fresh) > 0 || len(f.pending) > 0 || time.Since(f.walked) >= every
	followed := s.walks.followed()
	s.mu.Unlock()
	if !due {
		return nil
	}
	rows, now, err := s.listWalks(ctx, followed, 0)
	if err != nil {
		return err
	}
	s.mu.Lock()
	f.pending = append(f.pending, s.walks.add(rows, now)...)
	s.mu.Unlock()
	for len(f.pending) > 0 {
		a := f.pending[0]
		if channels := s.hub.within(a); len(channels) > 0 {
			slices.Sort(channels)
			reached, err := db.Column[int64](ctx, s.pool, queries.channelsReached,
				pgx.StrictNamedArgs{"arrival": a.arrival, "channels": channels})
			if err != nil {
				return err
			}
			text := newEvent(a.arrival)
			for _, id := range reached {
				f.events[id] = append(f.events[id], text)
			}
		}
		f.pending = f.pending[1:]
	}
	f.walked, f.at = time.Now(), now.Unix()
	return nil
}

func (s *Server) listArrivals(ctx context.Context, after *int64, holes []int64) ([]arrivalRow, error) {
	if holes == nil {
		holes = []int64{}
	}
	return db.All[arrivalRow](ctx, s.pool, queries.arrivalList, pgx.StrictNamedArgs{"after": after, "holes": holes, "rows": maxRows})
}

// listWalks returns the progress of jobs, and the time in the database's clock. With past it includes those that were walked
// in that time.
func (s *Server) listWalks(ctx context.Context, followed []int64, past time.Duration) ([]progress, time.Time, error) {
	if followed == nil {
		followed = []int64{}
	}
	var seconds *float64
	if past > 0 {
		n := past.Seconds()
		seconds = &n
	}
	rows, err := db.All[progress](ctx, s.pool, queries.walkList, pgx.StrictNamedArgs{"followed": followed, "seconds": seconds})
	if err != nil {
		return nil, time.Time{}, err
	}
	at, err := strconv.ParseInt(rows[0].Cursor, 10, 64)
	return rows[1:], time.Unix(at, 0), err
}

func numbersOf(rows []arrivalRow) []int64 {
	list := make([]int64, len(rows))
	for i, r := range rows {
		list[i] = r.Arrival
	}
	return list
}

// message is the JSON object of an event.
type message struct {
	Type         string              `json:"type"`
	ID           int64               `json:"id,omitempty"`
	Notification *inbox.Notification `json:"notification,omitempty"`
}

// newEvent returns an event without content.
func newEvent(arrival int64) []byte {
	return append(strconv.AppendInt([]byte(`{"type":"new","id":`), arrival, 10), '}')
}
