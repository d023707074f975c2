package samples

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Kind is the kind of a subject.
type Kind string

// The kinds, as in samples_kind_check.
const (
	Lane   Kind = "lane"   // by its name
	Job    Kind = "job"    // by its id
	Sender Kind = "sender" // by its name
)

// Rest is the name of the sum of a kind's least busy subjects.
const Rest = "*"

const (
	// busiest is the maximum number of subjects of a kind that a process stores for one minute, besides Rest.
	busiest = 200
	// counted is the maximum number of subjects of a kind that are counted in a minute. Further ones are
	// counted under Rest at once.
	counted = 10_000
)

// figures are those of a subject in a minute.
type figures struct {
	medium                       string
	rows, sent, failed, deferred int64
	depth                        int64
	took                         *durations // nil: none
}

// busy orders subjects.
func (f *figures) busy() int64 { return f.rows + f.sent + f.failed + f.deferred }

// merge adds the figures of another subject.
func (f *figures) merge(g *figures) {
	f.rows, f.sent, f.failed, f.deferred = f.rows+g.rows, f.sent+g.sent, f.failed+g.failed, f.deferred+g.deferred
	f.depth = max(f.depth, g.depth)
	if g.took != nil {
		if f.took == nil {
			f.took = new(durations)
		}
		f.took.merge(g.took)
	}
}

// minute has the figures of one minute, or less at the start and at the end of a process.
type minute struct {
	began, ended time.Time
	kinds        map[Kind]map[string]*figures
}

func newMinute(began time.Time) *minute {
	return &minute{began: began, kinds: make(map[Kind]map[string]*figures)}
}

// of returns the figures of a subject.
func (m *minute) of(kind Kind, name string) *figures {
	subjects := m.kinds[kind]
	if subjects == nil {
		subjects = make(map[string]*figures)
		m.kinds[kind] = subjects
	}
	f := subjects[name]
	if f == nil && len(subjects) >= counted {
		name = Rest
		f = subjects[name]
	}
	if f == nil {
		f = new(figures)
		subjects[name] = f
	}
	return f
}

// bound merges all but the busiest subjects of each kind into Rest.
func (m *minute) bound() {
	for _, subjects := range m.kinds {
		if len(subjects) <= busiest {
			continue
		}
		rest := cmp.Or(subjects[Rest], new(figures))
		delete(subjects, Rest)
		names := make([]string, 0, len(subjects))
		for name := range subjects {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int {
			return cmp.Or(cmp.Compare(subjects[b].busy(), subjects[a].busy()), cmp.Compare(a, b))
		})
		for _, name := range names[min(busiest, len(names)):] {
			rest.merge(subjects[name])
			delete(subjects, name)
		}
		subjects[Rest] = rest
	}
}

// age returns the age of the middle of the minute, so that clocks that differ by some seconds agree on it.
func (m *minute) age(now time.Time) time.Duration { return now.Sub(m.began) - m.ended.Sub(m.began)/2 }

// durations counts durations in buckets that grow by 19 %, from 1 ms to more than an hour.
type durations struct {
	n  int64
	of [90]int64
}

func (d *durations) add(took time.Duration) {
	i := 0
	if ms := took.Seconds() * 1000; ms > 1 {
		i = min(int(math.Ceil(4*math.Log2(ms))), len(d.of)-1)
	}
	d.of[i]++
	d.n++
}

func (d *durations) merge(e *durations) {
	for i, n := range e.of {
		d.of[i] += n
	}
	d.n += e.n
}

// p95 returns the 95th percentile in milliseconds, at most 19 % too high, at least 1, and 0 without durations.
func (d *durations) p95() int64 {
	if d == nil || d.n == 0 {
		return 0
	}
	left := d.n - d.n/20
	for i, n := range d.of {
		if left -= n; left <= 0 {
			return int64(math.Ceil(math.Exp2(float64(i) / 4)))
		}
	}
	return 0
}
