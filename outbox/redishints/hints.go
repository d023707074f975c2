// Package redishints passes hints between nodes on a Redis or Valkey server: one stream, {prefix:live}:hints, that every
// node reads by itself, without a consumer group. A hint is a kind and a channel, such as "mark 7"; an entry has the hints
// of a node since its previous entry.
//
//	Send ─► pending, each hint once ─► XADD, at most one in 10 ms ─► stream, the newest 1,000 entries or so
//	received ◄─ each hint of another node once ◄─ XREAD, at most one in 10 ms ◄─┘
//
// # Invariants
//
//  1. Send waits for nothing. While the server is unreachable, up to 500 hints wait, and later ones are dropped.
//  2. A node continues after the last entry that it has read, also after an outage. It does not receive its own hints.
//  3. Run ends with its context, whatever the server does.
//  4. Entries are input: anything else than a kind and a number is ignored, and so are entries that are larger than a node's.
//     A flood is received in batches of up to 20 entries, which have 10,000 hints at most.
//
// # Not guaranteed
//
// A hint may be lost or come twice: nothing may depend on one.
package redishints

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/redisdb"
)

const (
	maxPending = 500    // hints
	maxEntries = 1000   // of the stream, approximately
	maxRead    = 20     // entries of a batch: a server sends them whole, whatever their size
	maxBytes   = 20_000 // of the hints of an entry; 500 of a node are shorter
	pace       = 10 * time.Millisecond
	// The first and the longest pause after an error.
	firstPause, longestPause = 100 * time.Millisecond, 5 * time.Second
)

type hint struct {
	kind    string
	channel int64
}

// Stream sends and receives hints. It is safe for concurrent use.
type Stream struct {
	db        *redisdb.DB
	key, node string
	timeout   time.Duration
	block     time.Duration // of a read
	log       zerolog.Logger
	added     chan struct{} // size 1

	mu      sync.Mutex
	pending map[hint]struct{}
}

// New returns a Stream on the server of a valid configuration. Errors concern certificate files and name the keys below
// path. It connects on first use. The caller runs or closes it.
func New(config redisdb.Config, path string, log zerolog.Logger) (*Stream, error) {
	db, err := redisdb.Open(config, path, 1)
	if err != nil {
		return nil, err
	}
	return &Stream{
		db: db, key: db.Tag("live") + "hints", node: rand.Text(), timeout: config.Timeout, block: 5 * time.Second, log: log,
		added: make(chan struct{}, 1), pending: make(map[hint]struct{}),
	}, nil
}

// Close closes the connections. A nil stream has none.
func (s *Stream) Close() error {
	if s == nil {
		return nil
	}
	return s.db.Close()
}

// Check runs every command once, so that missing permissions are found.
func (s *Stream) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := s.add(ctx, "")
	if err == nil || redisdb.Full(err) { // a full server drains
		_, err = s.newest(ctx, "-")
	}
	if err == nil {
		_, err = s.entries(ctx, "0-0", -1)
	}
	return s.explain(err)
}

// Send has the other nodes receive a hint. kind has neither blanks nor commas.
func (s *Stream) Send(kind string, channel int64) {
	s.mu.Lock()
	if len(s.pending) < maxPending {
		s.pending[hint{kind, channel}] = struct{}{}
	}
	s.mu.Unlock()
	select {
	case s.added <- struct{}{}:
	default:
	}
}

// Run sends, and calls received with the hints of other nodes, until ctx ends. Then it closes the connections. received
// must return soon.
func (s *Stream) Run(ctx context.Context, received func(kind string, channel int64)) {
	defer context.AfterFunc(ctx, func() { _ = s.Close() })() // ends the calls in progress
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() { s.repeat(ctx, "send", s.write) })
	at := ""
	s.repeat(ctx, "receive", func(ctx context.Context) (err error) {
		at, err = s.read(ctx, at, received)
		return err
	})
}

// repeat calls a function until ctx ends. It logs no single error, such as that of a connection that was cut.
func (s *Stream) repeat(ctx context.Context, what string, once func(context.Context) error) {
	pause := pace
	for failures := 0; lifecycle.Pause(ctx, pause) == nil; {
		err := once(ctx)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			if failures > 1 {
				s.log.Info().Str("detail", what).Msg("hints pass between nodes again")
			}
			failures, pause = 0, pace
		default:
			if failures++; failures == 2 {
				s.log.Warn().Err(s.explain(err)).Str("detail", what).Msg("no hints pass between nodes; notifications arrive all the same")
			}
			pause = min(firstPause<<min(failures, 10), longestPause)
		}
	}
}

// write sends the pending hints. After an error they are pending again.
func (s *Stream) write(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.added:
	}
	s.mu.Lock()
	batch := s.pending
	s.pending = make(map[hint]struct{})
	s.mu.Unlock()
	var text strings.Builder
	for h := range batch {
		fmt.Fprintf(&text, "%s %d,", h.kind, h.channel)
	}
	err := s.add(ctx, text.String())
	if err != nil {
		for h := range batch {
			s.Send(h.kind, h.channel)
		}
	}
	return err
}

// read passes on the entries after at, or after the newest one if at is empty, and returns the id of the last one.
func (s *Stream) read(ctx context.Context, at string, received func(kind string, channel int64)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.block+s.timeout)
	defer cancel()
	if at == "" {
		newest, err := s.newest(ctx, "-")
		if err != nil {
			return "", err
		}
		at = cmp.Or(newest, "0-0")
	}
	entries, err := s.entries(ctx, at, s.block)
	if err == nil && len(entries) == 0 { // ids of another server, or of a stream that was deleted, may be lower
		if newest, err := s.newest(ctx, at); err == nil && newest == "" {
			return "0-0", nil
		}
	}
	seen := make(map[hint]bool)
	for _, e := range entries {
		at = e.ID
		if e.Values["node"] == s.node {
			continue
		}
		text, _ := e.Values["hints"].(string)
		if len(text) > maxBytes || strings.Count(text, ",") > maxPending {
			continue
		}
		for one := range strings.SplitSeq(text, ",") {
			kind, number, _ := strings.Cut(one, " ")
			channel, wrong := strconv.ParseInt(number, 10, 64)
			if h := (hint{kind, channel}); wrong == nil && !seen[h] {
				seen[h] = true
				received(kind, channel)
			}
		}
	}
	return at, err
}

// add adds an entry.
func (s *Stream) add(ctx context.Context, hints string) error {
	return s.db.Do.XAdd(ctx, &redis.XAddArgs{
		Stream: s.key, MaxLen: maxEntries, Approx: true, Values: []string{"node", s.node, "hints", hints},
	}).Err()
}

// newest returns the id of the newest entry at or after from, or an empty one.
func (s *Stream) newest(ctx context.Context, from string) (id string, err error) {
	list, err := s.db.Do.XRevRangeN(ctx, s.key, "+", from, 1).Result()
	if err != nil || len(list) == 0 {
		return "", err
	}
	return list[0].ID, nil
}

// entries returns the entries after at. It waits for one if wait is not negative.
func (s *Stream) entries(ctx context.Context, at string, wait time.Duration) ([]redis.XMessage, error) {
	list, err := s.db.Block.XRead(ctx, &redis.XReadArgs{Streams: []string{s.key, at}, Count: maxRead, Block: wait}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0].Messages, nil
}

// explain adds to an error the necessary rights, or what to delete: who may write the stream can add the greatest id, and
// there is none after it.
func (s *Stream) explain(err error) error {
	if redis.HasErrorPrefix(err, "The stream has exhausted") || redis.HasErrorPrefix(err, "The ID specified in XADD") { // since 7.0, and 6.2
		return fmt.Errorf("%w (somebody has added the greatest id; DEL %s)", err, s.key)
	}
	if redisdb.Denied(err) {
		return fmt.Errorf("%w (ACL SETUSER … ~%s* +xadd +xread +xrevrange)", err, strings.TrimSuffix(s.key, "live}:hints"))
	}
	return err
}
