package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/outbox"
)

const (
	// batchMost is the maximum size of an atomic batch.
	batchMost = 1000
	// refusedFor is the time after which a leader that refuses every push is replaced.
	refusedFor = 5 * time.Second
)

// Error codes of JetStream that the library does not define.
const (
	codeStoreFailed   = 10077 // maximum messages or bytes
	codeAccountFull   = 10002 // resource limits exceeded for account
	codeNotUnique     = 10100 // filtered consumer not unique on workqueue stream
	codeWrongSequence = natsjs.JSErrCodeStreamWrongLastSequence
	codeInProgress    = natsjs.JSErrCodeStreamWrongLastSequenceConstant // another push is being stored
)

// Headers of a batch, which the library does not define either.
const (
	headerBatch    = "Nats-Batch-Id"
	headerSequence = "Nats-Batch-Sequence"
	headerCommit   = "Nats-Batch-Commit"
)

// stored is the count of a queue with its sequence in the stream. It is zero if there is no count.
type stored struct {
	count
	seq uint64
}

var errMoved = errors.New("another push was stored concurrently")

// Push implements outbox.Carrier. It stores the ids and the count atomically, if the stored count is the known
// one.
func (c *carrier) Push(ctx context.Context, p outbox.PushGroup) (outbox.PushAnswer, error) {
	l := c.b.lines[p.Queue]
	l.pushing.Lock()
	defer l.pushing.Unlock()
	var answer outbox.PushAnswer
	err := l.with(ctx, func(ctx context.Context, to *opened) (err error) {
		if answer, err = l.push(ctx, to, p); err != nil {
			l.known, l.room = nil, 0
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("push %d to stream %s: %w", p.Number, l.stream, err)
	}
	return answer, nil
}

// push requires the lock pushing.
func (l *line) push(ctx context.Context, to *opened, p outbox.PushGroup) (answer outbox.PushAnswer, err error) {
	for fresh := false; ; {
		if l.known == nil {
			if l.known, err = l.read(ctx, to); err != nil {
				return "", err
			}
			fresh = true
		}
		k := l.known
		next := k.Last + 1
		if k.Epoch != p.Epoch {
			next = p.First
		}
		if p.Number != next { // the known count may be outdated
			if !fresh {
				l.known = nil
				continue
			}
			if k.Epoch == p.Epoch && p.Number < next {
				return outbox.PushDone, nil
			}
			return outbox.PushGap, nil
		}
		answer, err = l.store(ctx, to, p)
		if !errors.Is(err, errMoved) {
			return answer, err
		}
		if fresh {
			l.replaceLeader(ctx, to, k.seq)
			return outbox.PushGap, nil // the dispatcher reads Inside
		}
		l.known = nil
	}
}

// replaceLeader is called for a push that was refused although the count has the sequence that it names. If pushes
// after this count have been refused for refusedFor, it makes the stream's leader step down. NATS 2.12 forgets a push that
// its leader began to store, but did not store, only when another server leads.
func (l *line) replaceLeader(ctx context.Context, to *opened, seq uint64) {
	if l.refused.since.IsZero() || l.refused.seq != seq {
		l.refused.seq, l.refused.since = seq, time.Now()
	}
	if time.Since(l.refused.since) < refusedFor {
		return
	}
	l.refused.since = time.Time{}
	reply, err := to.conn.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+l.stream, nil)
	if err == nil {
		var answer struct {
			Error *natsjs.APIError `json:"error"`
		}
		if err = json.Unmarshal(reply.Data, &answer); answer.Error != nil {
			err = answer.Error
		}
	}
	l.b.options.Log.Warn().Err(err).Str("transport", name).Str("detail", l.stream).
		Msg("the leader of the stream refuses all pushes; another one is requested")
}

// read reads the count from the leader of the stream.
func (l *line) read(ctx context.Context, to *opened) (*stored, error) {
	m, err := to.stream.GetLastMsgForSubject(ctx, l.state)
	if errors.Is(err, natsjs.ErrMsgNotFound) {
		return &stored{}, nil
	}
	if err != nil {
		return nil, err
	}
	c, err := decodeCount(m.Data)
	if err != nil { // the next push replaces it
		c = count{}
	}
	return &stored{c, m.Sequence}, nil
}

// store stores a push. A push that exceeds a batch is stored in parts, the count with the last part. After a
// crash between parts the first ones are stored twice, and each message is claimed once.
func (l *line) store(ctx context.Context, to *opened, p outbox.PushGroup) (outbox.PushAnswer, error) {
	keys := p.Keys
	if l.room < len(keys) {
		info, err := to.consumer.Info(ctx)
		if err != nil {
			return "", err
		}
		if l.room = l.b.options.MaxQueued - int(info.NumPending); l.room < len(keys) { //nolint:gosec // a count of a bounded queue
			return outbox.PushFull, nil
		}
	}
	l.room -= len(keys)
	for ; len(keys) >= batchMost; keys = keys[batchMost/2:] {
		part := l.items(p, keys[:batchMost/2])
		part[0].Header.Set(natsjs.ExpectedLastSubjSeqHeader, strconv.FormatUint(l.known.seq, 10))
		part[0].Header.Set(natsjs.ExpectedLastSubjSeqSubjHeader, l.state)
		if answer, _, err := l.batch(ctx, to, part); err != nil || answer != outbox.PushDone {
			return answer, err
		}
	}
	c := count{Epoch: p.Epoch, First: p.First, Last: p.Number}
	counts := &nats.Msg{Subject: l.state, Data: c.encode(), Header: nats.Header{}}
	counts.Header.Set(natsjs.ExpectedLastSubjSeqHeader, strconv.FormatUint(l.known.seq, 10))
	counts.Header.Set(natsjs.MsgRollup, natsjs.MsgRollupSubject)
	answer, seq, err := l.batch(ctx, to, append(l.items(p, keys), counts))
	if err == nil && answer == outbox.PushDone {
		l.known = &stored{c, seq}
		l.refused.since = time.Time{}
	}
	return answer, err
}

func (l *line) items(p outbox.PushGroup, keys []outbox.Key) []*nats.Msg {
	list := make([]*nats.Msg, len(keys), len(keys)+1)
	for i, k := range keys {
		list[i] = &nats.Msg{
			Subject: l.ids, Header: nats.Header{},
			Data: item{Copy: outbox.Copy{Key: k, Push: p.Number}, epoch: p.Epoch, lane: p.Lane}.encode(),
		}
	}
	return list
}

// batch stores messages, all or none, and returns the sequence of the last one.
func (l *line) batch(ctx context.Context, to *opened, messages []*nats.Msg) (outbox.PushAnswer, uint64, error) {
	last := messages[len(messages)-1]
	if len(messages) > 1 {
		id := uuid.NewString()
		for i, m := range messages {
			m.Header.Set(headerBatch, id)
			m.Header.Set(headerSequence, strconv.Itoa(i+1))
		}
		last.Header.Set(headerCommit, "1")
		for _, m := range messages[:len(messages)-1] {
			if err := to.conn.PublishMsg(m); err != nil {
				return "", 0, err
			}
		}
	}
	reply, err := to.conn.RequestMsgWithContext(ctx, last)
	if err != nil {
		return "", 0, err
	}
	var answer struct {
		Error *natsjs.APIError `json:"error"`
		Seq   uint64           `json:"seq"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return "", 0, fmt.Errorf("decode the server's reply: %w", err)
	}
	if answer.Error == nil && answer.Seq > 0 {
		return outbox.PushDone, answer.Seq, nil
	}
	if answer.Error == nil {
		return "", 0, errors.New("the server's reply has no sequence")
	}
	switch code := answer.Error.ErrorCode; {
	case code == codeAccountFull, code == codeStoreFailed && strings.HasPrefix(answer.Error.Description, "maximum"):
		return outbox.PushFull, 0, nil
	case code == codeWrongSequence, code == codeInProgress:
		return "", 0, errMoved
	}
	return "", 0, answer.Error
}

// Inside implements outbox.Carrier.
func (c *carrier) Inside(ctx context.Context, q outbox.Queue) (outbox.Inside, error) {
	return c.b.lines[q].inside(ctx)
}

// inside reads the count and the first remaining copy. Copies are in the order of their pushes. If the first
// copy belongs to an earlier epoch, Oldest covers all pushes of the current epoch.
func (l *line) inside(ctx context.Context) (in outbox.Inside, err error) {
	err = l.with(ctx, func(ctx context.Context, to *opened) error {
		l.settled(ctx, to)
		k, err := l.read(ctx, to)
		if err != nil {
			return err
		}
		in = outbox.Inside{Epoch: k.Epoch, Last: k.Last, Oldest: k.Last + 1}
		m, err := to.stream.GetMsg(ctx, 1, natsjs.WithGetMsgSubject(l.ids))
		if errors.Is(err, natsjs.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		switch i, err := decodeItem(m.Data); {
		case err != nil:
			in.Oldest = k.First
		case i.epoch != k.Epoch:
			in.Oldest = min(i.Push, k.First)
		default:
			in.Oldest = i.Push
		}
		return nil
	})
	if err != nil {
		return outbox.Inside{}, fmt.Errorf("read the pushes of stream %s: %w", l.stream, err)
	}
	return in, nil
}

// settled waits until the server has processed this process's acknowledgements, which it does not confirm
// but processes in order: it confirms the last one. After a timeout, settled copies may be counted once more.
func (l *line) settled(ctx context.Context, to *opened) {
	l.acked.Lock()
	last := l.last
	l.last = ""
	l.acked.Unlock()
	if last == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, min(l.b.config.Timeout/4, time.Second))
	defer cancel()
	if _, err := to.conn.RequestWithContext(ctx, last, []byte("+ACK")); err != nil {
		l.b.options.Log.Debug().Err(err).Str("transport", name).Str("detail", l.stream).Msg("acknowledgements are not confirmed")
	}
}
