package main

import (
	"context"
	"fmt"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// audience is one measured: what its median run cost, and its worst chunk.
type audience struct {
	name   string
	who    channels.Audience
	sparse bool // nearly no matches: what counts is that no chunk scans on and on

	matches, keys, chunks, mostKeys int64
	ms, each, longest, outside      float64 // each: µs for each match
}

// audiences are circles around a conurbation and around the place in the ocean that is
// farthest from any land (Point Nemo, some 2,700 km from the nearest shore), a platform that
// hardly anybody is on, and everyone.
func audiences() (all []audience) {
	for _, km := range []float64{1, 3, 10, 30, 100, 300, 1000, 3000, 6000} {
		all = append(all, audience{name: fmt.Sprintf("Seoul %.0f km", km), who: channels.Within(37.566, 126.978, km*1000)})
	}
	for _, km := range []float64{100, 2600} {
		all = append(all, audience{name: fmt.Sprintf("ocean %.0f km", km), who: channels.Within(-48.877, -123.393, km*1000), sparse: true})
	}
	return append(all,
		audience{name: "platform kiosk", who: channels.OnPlatforms("kiosk"), sparse: true},
		audience{name: "everyone", who: channels.Everyone()})
}

// enoughMatches is from how many matches on the time of each is judged: for smaller circles
// the fixed cost of a job, some milliseconds, is all there is.
const enoughMatches = 1000

// radius runs an inbox job for audiences from nobody to everyone and shows what each cost.
// Cost in proportion to matches is judged by keys examined and by time for each match.
func radius(ctx context.Context, e *env, r *result) {
	e.do(ctx, e.pool, queries.platformRare)
	all := audiences()
	r.Table = &table{Columns: []string{"audience", "matches", "keys examined", "ms", "µs/match", "chunks", "most keys", "longest ms", "outside ms"}}
	for i := range all {
		a := &all[i]
		e.runAudience(ctx, a)
		each := any("-")
		if a.matches > 0 {
			each = a.each
		}
		r.Table.Rows = append(r.Table.Rows, []any{a.name, a.matches, a.keys, a.ms, each, a.chunks, a.mostKeys, a.longest, a.outside})
		e.say("  %s: %s matches, %s ms", a.name, grouped(a.matches), number(a.ms))
	}
	e.radiusFigures(r, all)
	r.note("most keys, longest ms: of one chunk. outside ms: claim, bound, finding a circle's channels, finish.")
	r.note("A chunk examines at most %s keys (chunk.max_rows).", grouped(int64(job.DefaultConfig().Chunk.MaxRows)))
}

func (e *env) runAudience(ctx context.Context, a *audience) {
	defer e.within(a.name)
	spec := everyone(outbox.TypeInbox)
	spec.Audience = a.who
	var ms, outside []float64
	for range e.rounds {
		t := e.runJob(ctx, spec, job.DefaultConfig())
		var err error
		a.matches, err = e.store.Count(ctx, e.pool, a.who)
		e.check(err)
		e.demand(a.matches == t.job.RowsWritten, "%d rows for %d matches", t.job.RowsWritten, a.matches)
		a.keys, a.chunks = t.job.ChannelsRead, int64(len(t.chunks))
		rest := milliseconds(t.took)
		ms = append(ms, rest)
		for _, c := range t.chunks {
			a.mostKeys, a.longest = max(a.mostKeys, c.keys), max(a.longest, c.ms)
			rest -= c.ms
		}
		outside = append(outside, rest)
	}
	a.ms, a.outside = median(ms), median(outside)
	a.each = 1000 * a.ms / float64(max(a.matches, 1))
}

func (e *env) radiusFigures(r *result, all []audience) {
	smallest, last := all[0], all[len(all)-1]
	var keysPerMatch, dearest float64
	var sparse, most audience // the worst of those with next to no match, and of all
	for _, a := range all {
		most.mostKeys, most.longest = max(most.mostKeys, a.mostKeys), max(most.longest, a.longest)
		switch {
		case a.sparse:
			sparse.mostKeys, sparse.longest = max(sparse.mostKeys, a.mostKeys), max(sparse.longest, a.longest)
		case a.keys >= e.size: // more than a walk looks ahead: dense, walked by id
		default:
			keysPerMatch = max(keysPerMatch, float64(a.keys)/float64(max(a.matches, 1)))
			if a.matches >= enoughMatches {
				dearest = max(dearest, a.each)
			}
		}
	}
	r.figure("smallest_circle", fmt.Sprintf("the smallest circle, %s matches", grouped(smallest.matches)), smallest.ms, unitMS)
	r.figure("everyone", "everyone", last.ms, unitMS)
	r.figure("smallest_to_everyone", "smallest circle to everyone", smallest.ms/last.ms, unitRatio)
	r.figure("keys_per_match", "most keys examined for each match, circles", keysPerMatch, unitTimes)
	if dearest > 0 {
		r.figure("match_to_everyone", fmt.Sprintf("a match of a circle (from %s on) to one of everyone, dearest", grouped(enoughMatches)), dearest/last.each, unitTimes)
	}
	r.figure("sparse_most_keys", "most keys in a chunk, audiences with next to no match", float64(sparse.mostKeys), unitCount, atMost(50_000))
	r.figure("sparse_longest_chunk", "longest chunk of those", sparse.longest, unitMS, atMost(250))
	r.figure("most_keys", "most keys in a chunk, all audiences", float64(most.mostKeys), unitCount, atMost(50_000))
	r.figure("longest_chunk", "longest chunk, all audiences", most.longest, unitMS)
}
