package redislist

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/outbox"
)

// Push implements outbox.Carrier.
func (b *Broker) Push(ctx context.Context, p outbox.PushGroup) (outbox.PushAnswer, error) {
	k := b.queues[placeOf(p.Queue)]
	args := make([]any, 0, 5+len(p.Keys))
	args = append(args, k.tag, p.Epoch, p.First, p.Number, b.options.MaxQueued)
	for _, key := range p.Keys {
		args = append(args, itemOf(outbox.Copy{Key: key, Push: p.Number}, p.Lane))
	}
	answer, err := b.run(ctx, b.scripts.push, []string{k.state, k.main, k.waiting, k.workers}, args...).Text()
	if redisdb.Full(err) {
		return outbox.PushFull, nil
	}
	if err != nil {
		return "", fmt.Errorf("push %d of the queue %s: %w", p.Number, p.Queue, err)
	}
	return outbox.PushAnswer(answer), nil
}

// Inside implements outbox.Carrier.
func (b *Broker) Inside(ctx context.Context, q outbox.Queue) (outbox.Inside, error) {
	s, err := b.status(ctx, b.queues[placeOf(q)])
	return s.Inside, err
}

// Queues implements outbox.Broker.
func (b *Broker) Queues(ctx context.Context) (list []outbox.QueueStatus, err error) {
	for _, k := range b.queues {
		s, e := b.status(ctx, k)
		list, err = append(list, s), errors.Join(err, e)
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

func (b *Broker) status(ctx context.Context, k keys) (outbox.QueueStatus, error) {
	s := outbox.QueueStatus{Queue: k.name}
	reply, err := b.run(ctx, b.scripts.status, []string{k.state, k.main, k.waiting, k.workers, k.dead}, k.tag, b.options.MaxQueued).Slice()
	if err != nil {
		return s, fmt.Errorf("read the status of the queue %s: %w", k.name, err)
	}
	var full int64
	read := func(i int, to *int64) { *to, _ = reply[i].(int64) } // the order of status.lua
	s.Epoch, _ = reply[0].(string)
	read(1, &s.Last)
	read(2, &s.Oldest)
	read(3, &s.Ready)
	read(4, &s.Later)
	read(5, &s.Dead)
	read(6, &full)
	s.Full = full == 1
	if s.Oldest < 0 {
		s.Oldest = s.Last + 1
	}
	for i := 7; i+2 < len(reply); i += 3 {
		var w outbox.WorkerStatus
		var seen int64
		w.Name, _ = reply[i].(string)
		read(i+1, &seen)
		read(i+2, &w.Taken)
		if at := time.UnixMilli(seen).UTC(); time.Since(at) < b.pace.alive {
			w.Seen = at
		}
		s.Taken += w.Taken
		s.Workers = append(s.Workers, w)
	}
	return s, nil
}
