package bench

import (
	"context"
	"fmt"
	"strconv"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// place is a centre of circles.
type place struct {
	name                string
	latitude, longitude float64
}

// The centre of a conurbation, and the place in the ocean that is farthest from
// any land (Point Nemo, some 2,700 km from the nearest shore).
func city() place  { return place{"Seoul", 37.566, 126.978} }
func ocean() place { return place{"ocean", -48.877, -123.393} }

// audienceCase is one audience measured.
type audienceCase struct {
	name     string
	audience channels.Audience
	sparse   bool // nearly no matches: what counts is that no chunk scans on and on
}

func audienceCases() []audienceCase {
	var cases []audienceCase
	for _, km := range []float64{1, 3, 10, 30, 100, 300, 1000, 3000, 6000} {
		cases = append(cases, circle(city(), km, false))
	}
	return append(cases,
		circle(ocean(), 100, true),
		circle(ocean(), 2600, true),
		audienceCase{"platform kiosk", channels.OnPlatforms("kiosk"), true},
		audienceCase{"everyone", channels.Everyone(), false},
	)
}

func circle(p place, km float64, sparse bool) audienceCase {
	name := p.name + " " + strconv.FormatFloat(km, 'f', -1, 64) + " km"
	return audienceCase{name, channels.Within(p.latitude, p.longitude, km*1000), sparse}
}

// radius runs an inbox job for audiences from nobody to everyone and shows what
// each cost. Cost in proportion to matches is judged by keys examined and by time
// for each match, and not for circles so small that the fixed cost of a job, some
// milliseconds, is all there is.
func radius(ctx context.Context, e *env, r *Result) error {
	if _, err := e.pool.Exec(ctx, queries.SQL("PlatformRare")); err != nil {
		return fmt.Errorf("make a rare platform: %w", err)
	}
	r.Table = &Table{Columns: []string{"audience", "matches", "keys examined", "ms", "µs/match", "chunks", "most keys", "longest ms", "outside ms"}}
	sum := radiusSummary{channels: e.Channels}
	for _, c := range audienceCases() {
		m, err := e.runAudience(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		sum.add(c, m)
		r.Table.Rows = append(r.Table.Rows, m.row(c.name))
		e.progress("  %s: %s matches, %s ms", c.name, grouped(m.matches), number(m.ms))
	}
	sum.figures(r)
	r.Notes = append(r.Notes,
		"most keys, longest ms: of one chunk. outside ms: claim, bound, finding a circle's channels, finish.",
		fmt.Sprintf("A chunk examines at most %s keys (chunk.max_rows).", grouped(int64(job.DefaultConfig().Chunk.MaxRows))))
	return nil
}

// audienceRun is the median run of one audience over the rounds, and the worst
// chunk of all.
type audienceRun struct {
	matches, keys, mostKeys       int64
	chunks                        int
	ms, longestMS, outsideMS      float64
	microsecondsMatch, keysAMatch float64
}

func (e *env) runAudience(ctx context.Context, c audienceCase) (audienceRun, error) {
	var m audienceRun
	var ms, outside []float64
	for range e.Rounds {
		if err := e.clear(ctx); err != nil {
			return m, err
		}
		spec := everyone(outbox.TypeInbox)
		spec.Audience = c.audience
		t, err := e.runJob(ctx, spec, job.DefaultConfig())
		if err != nil {
			return m, err
		}
		want, err := e.store.Count(ctx, e.pool, c.audience)
		if err != nil {
			return m, err
		}
		if want != t.job.RowsWritten {
			return m, fmt.Errorf("%d rows for %d matches", t.job.RowsWritten, want)
		}
		m.matches, m.keys, m.chunks = want, t.job.ChannelsRead, len(t.chunks)
		m.mostKeys = max(m.mostKeys, t.mostKeys())
		m.longestMS = max(m.longestMS, milliseconds(t.longest()))
		ms, outside = append(ms, milliseconds(t.took)), append(outside, milliseconds(t.took-t.inChunks()))
	}
	m.ms, m.outsideMS = median(ms), median(outside)
	if m.matches > 0 {
		m.microsecondsMatch = 1000 * m.ms / float64(m.matches)
		m.keysAMatch = float64(m.keys) / float64(m.matches)
	}
	return m, nil
}

func (m audienceRun) row(name string) []any {
	each := any("-")
	if m.matches > 0 {
		each = m.microsecondsMatch
	}
	return []any{name, m.matches, m.keys, m.ms, each, m.chunks, m.mostKeys, m.longestMS, m.outsideMS}
}

// enoughMatches is from how many matches on the time of each is judged.
const enoughMatches = 1000

// radiusSummary gathers what the series shows.
type radiusSummary struct {
	channels                     int64
	everyoneMS, everyoneEach     float64
	sparseKeys                   int64
	sparseLongestMS              float64
	matches                      int64
	smallestMS, worstEach        float64 // the smallest circle's time; time a match of the dearest circle
	worstKeys                    float64 // keys a match, over all circles that were not walked by id
	longestMS                    float64
	mostKeys                     int64
	haveCircle, haveEnoughCircle bool
}

func (s *radiusSummary) add(c audienceCase, m audienceRun) {
	s.mostKeys, s.longestMS = max(s.mostKeys, m.mostKeys), max(s.longestMS, m.longestMS)
	switch {
	case c.audience.Kind == channels.KindEveryone:
		s.everyoneMS, s.everyoneEach = m.ms, m.microsecondsMatch
	case c.sparse:
		s.sparseKeys, s.sparseLongestMS = max(s.sparseKeys, m.mostKeys), max(s.sparseLongestMS, m.longestMS)
	default:
		if !s.haveCircle {
			s.haveCircle, s.smallestMS, s.matches = true, m.ms, m.matches
		}
		if m.keys >= s.channels {
			return // more than a walk looks ahead: dense, walked by id
		}
		s.worstKeys = max(s.worstKeys, m.keysAMatch)
		if m.matches >= enoughMatches {
			s.haveEnoughCircle, s.worstEach = true, max(s.worstEach, m.microsecondsMatch)
		}
	}
}

func (s *radiusSummary) figures(r *Result) {
	r.figure("smallest_circle", fmt.Sprintf("the smallest circle, %s matches", grouped(s.matches)), s.smallestMS, unitMS, nil)
	r.figure("everyone", "everyone", s.everyoneMS, unitMS, nil)
	r.figure("smallest_to_everyone", "smallest circle to everyone", s.smallestMS/s.everyoneMS, unitRatio, nil)
	r.figure("keys_per_match", "most keys examined for each match, circles", s.worstKeys, unitTimes, nil)
	if s.haveEnoughCircle {
		r.figure("match_to_everyone", fmt.Sprintf("a match of a circle (from %s on) to one of everyone, dearest", grouped(enoughMatches)),
			s.worstEach/s.everyoneEach, unitTimes, nil)
	}
	r.figure("sparse_most_keys", "most keys in a chunk, audiences with next to no match", float64(s.sparseKeys), unitCount,
		atMost(float64(job.DefaultConfig().Chunk.MaxRows)))
	r.figure("sparse_longest_chunk", "longest chunk of those", s.sparseLongestMS, unitMS, atMost(goalChunkP99MS))
	r.figure("most_keys", "most keys in a chunk, all audiences", float64(s.mostKeys), unitCount,
		atMost(float64(job.DefaultConfig().Chunk.MaxRows)))
	r.figure("longest_chunk", "longest chunk, all audiences", s.longestMS, unitMS, nil)
}
