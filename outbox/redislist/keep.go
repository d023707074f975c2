package redislist

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/outbox"
)

// Keep implements outbox.Carrier.
func (c *carrier) Keep(ctx context.Context) {
	var both sync.WaitGroup
	for _, t := range c.taken {
		both.Go(func() { c.listen(ctx, t) })
		both.Go(func() {
			c.keep(ctx, t)
			c.leave(ctx, t)
		})
	}
	both.Wait()
}

// listen waits for ids in main after Receive has found none, and wakes Receive.
func (c *carrier) listen(ctx context.Context, t *taken) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wanted:
		}
		// BLMOVE to the same end moves nothing, so an interrupted call needs no cleanup.
		err := c.db.Wait(ctx, func(on redis.Cmdable) error {
			return on.BLMove(context.WithoutCancel(ctx), t.main, t.main, "LEFT", "LEFT", c.pace.block).Err()
		})
		switch {
		case errors.Is(err, redis.Nil):
		case err != nil:
			if !redisdb.Full(err) { // at maxmemory the server refuses BLMOVE, but not take.lua
				t.doubts()
			}
			_ = lifecycle.Pause(ctx, c.pace.block/4)
			fallthrough
		default:
			t.news.Store(true)
			wake(c.arrived)
		}
	}
}

// keep sends heartbeats, moves due ids, repeats failed changes and returns the ids of dead workers
// until ctx ends.
func (c *carrier) keep(ctx context.Context, t *taken) {
	var recovered, scanned time.Time
	for ctx.Err() == nil {
		again, wait, monitors, err := c.heartbeat(ctx, t)
		if err == nil {
			err = c.repeat(ctx, t)
		}
		if err == nil && monitors && time.Since(recovered) > c.pace.alive/3 {
			if err = c.recover(ctx, t, time.Since(scanned) > c.pace.scan); err == nil {
				if recovered = time.Now(); time.Since(scanned) > c.pace.scan {
					scanned = recovered
				}
			}
		}
		c.health.observe(c.name, err)
		if again {
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-t.earlier:
		}
		timer.Stop()
	}
}

// heartbeat runs keep.lua. It reports whether more ids are due, the time until the next call, and
// whether this worker is the monitor.
func (c *carrier) heartbeat(ctx context.Context, t *taken) (again bool, wait time.Duration, monitors bool, err error) {
	reply, err := c.run(ctx, c.scripts.keep, []string{t.state, t.main, t.waiting, t.workers, t.monitor}, c.name,
		c.pace.alive.Milliseconds(), outbox.MaxBatch).Int64Slice()
	if err != nil {
		t.doubts()
		return false, c.pace.tick, false, fmt.Errorf("send the worker's heartbeat: %w", err)
	}
	wait = c.pace.tick
	if reply[1] >= 0 {
		wait = min(wait, time.Duration(reply[1])*time.Millisecond+time.Millisecond)
	}
	return reply[0] == outbox.MaxBatch, wait, reply[2] == 1, nil
}

// repeat retries the changes that failed.
func (c *carrier) repeat(ctx context.Context, t *taken) error {
	t.mu.Lock()
	late := slices.Clone(t.late)
	t.mu.Unlock()
	if len(late) == 0 {
		return nil
	}
	if err := c.change(ctx, t, late); err != nil {
		return err
	}
	t.mu.Lock()
	t.late = t.late[len(late):]
	t.mu.Unlock()
	return nil
}

// recover returns the ids of dead workers.
func (c *carrier) recover(ctx context.Context, t *taken, scan bool) error {
	workers, err := c.db.Do.ZRange(ctx, t.workers, 0, -1).Result()
	if err != nil {
		return fmt.Errorf("list the workers of the queue %s: %w", t.name, err)
	}
	if scan {
		found, err := c.scan(ctx, t.keys)
		if err != nil {
			return err
		}
		workers = append(workers, found...)
		slices.Sort(workers)
		workers = slices.Compact(workers)
	}
	for _, w := range workers {
		n, err := c.giveBack(ctx, t, w, c.pace.alive, c.pace.stuck)
		if err != nil {
			return err
		}
		if n > 0 {
			c.options.Log.Warn().Str("worker_id", w).Str("transport", c.String()).Str("detail", string(t.name)).Int("rows",
				n).Msg("returned the ids of a dead worker")
		}
	}
	return nil
}

func (c *carrier) giveBack(ctx context.Context, t *taken, worker string, alive, stuck time.Duration) (int, error) {
	n, err := c.run(ctx, c.scripts.giveBack, []string{t.state, t.main, t.workers, t.processing(worker)}, worker,
		alive.Milliseconds(), stuck.Milliseconds()).Int()
	if err != nil {
		return 0, fmt.Errorf("return the ids of a worker of the queue %s: %w", t.name, err)
	}
	return n, nil
}

// leave unregisters the worker and returns its ids, so that other workers can claim them.
func (c *carrier) leave(ctx context.Context, t *taken) {
	ctx = context.WithoutCancel(ctx)
	err := c.repeat(ctx, t)
	if err == nil {
		_, err = c.giveBack(ctx, t, c.name, -time.Millisecond, 0)
	}
	if err != nil {
		c.options.Log.Debug().Err(err).Str("worker_id", c.name).Str("transport",
			c.String()).Msg("the worker's ids are returned later, when its heartbeat has expired")
	}
}

// parseJob decodes a job id of a script's reply. It returns 0, which is no job's id, for any other
// text.
func parseJob(reply any) int64 {
	text, _ := reply.(string)
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0 // gets no credit
	}
	return id
}
