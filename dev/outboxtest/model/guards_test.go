package model_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
)

// design is belfry: all guards.
func design() guards {
	return guards{
		claimFree: true, claimDue: true, claimLatest: true, handOverFirst: true, recheck: true, settleOwner: true,
		recoverLost: true, recoverExpired: true, countCrash: true,
		pushCompared: true, pushCounted: true, firstOfEpoch: true, askInside: true, pushAgain: true, renewEarliest: true,
		sweepLost: true, sweepOldest: true,
		moveTaken: true, ownOnStart: true, ownOnError: true, putBack: true, backOwn: true, takeBack: true, heartbeat: true, afterLease: true,
		oneReclaims: true, trimBound: true, ackDeleted: true, deleteEmpty: true, groupAtZero: true,
	}
}

// carriers are the two models.
var carriers = map[string]bool{"lists": false, "streams": true}

// I8 to I11 and I13 in all that may happen to a message, on lists and on streams: two crashes
// and the loss of what a carrier took last, and less of the other faults.
func TestLong_CarrierModelHoldsInEveryState(t *testing.T) {
	t.Parallel()
	holds(t,
		model{all: failures{crash: 2, cut: 1}},
		model{all: failures{crash: 2, lock: 1}},
		model{all: failures{crash: 1, retry: 1}},
		model{all: failures{crash: 1, delete: 1}},
		model{all: failures{crash: 1, restart: 1, reply: 1}},
		model{all: failures{lead: 1, flush: 1}},
		model{all: failures{stop: 1}},
		model{messages: 2, all: failures{cut: 1}, begun: true},
		model{messages: 2, all: failures{crash: 1}},
	)
}

// The same with more faults together, and of two messages.
func TestModel_CarriersUnderMore(t *testing.T) {
	t.Parallel()
	holds(t,
		model{all: failures{crash: 2, retry: 1, restart: 1}},
		model{all: failures{crash: 2, stop: 1}},
		model{all: failures{crash: 2, lead: 1, flush: 1}},
		model{all: failures{crash: 1, reply: 1, cut: 1}},
		model{all: failures{crash: 2, restart: 1, reply: 1}},
		model{all: failures{stop: 1, retry: 1}},
		model{all: failures{crash: 2, retry: 1, lock: 1}},
		model{all: failures{crash: 2, delete: 1, retry: 1}},
		model{all: failures{stop: 1, cut: 1}},
		model{all: failures{stop: 1, lead: 1}},
		model{all: failures{crash: 1, lead: 1, cut: 1}},
		model{messages: 2, all: failures{crash: 2}},
		model{messages: 2, all: failures{crash: 1, cut: 1}},
		model{messages: 2, all: failures{crash: 1, retry: 1}},
		model{messages: 2, all: failures{lead: 1, flush: 1}},
	)
}

// holds searches models of both carriers with all guards.
func holds(t *testing.T, models ...model) {
	t.Helper()
	for name, stream := range carriers {
		all, taken := 0, make(map[op]bool)
		for _, m := range models {
			m.guards, m.stream = design(), stream
			f := searched(m)
			all += len(f.states)
			maps.Copy(taken, f.taken)
			require.Empty(t, f.broken, "%s, %d messages, %+v: %s", name, max(m.messages, 1), m.all, f.story())
			require.False(t, f.cut, "more than %d pushes: %+v", mostPushes, m.all)
			t.Logf("%s, %d messages, %+v: %d states", name, max(m.messages, 1), m.all, len(f.states))
		}
		t.Logf("%s: %d states in all", name, all)
		for o, what := range stepNames {
			never := o == opFault || o == opTrim || o == opDeleteConsumer || o == opReturn && stream || (o == opLook || o == opReclaim || o == opGroup) && !stream
			require.Equal(t, !never, taken[o], "%s: %s", name, what)
		}
	}
}

// removal takes one guard away, and says by which failures that is found.
type removal struct {
	guard   string
	without func(*guards)
	model   model
	broken  found
}

// Without any one of its guards the model breaks, so that none of them stands there in vain.
// go test -v -run CarrierModel_FindsEachGuard ./dev/outboxtest/model tells how, in the fewest steps.
func TestCarrierModel_FindsEachGuardThatIsMissing(t *testing.T) {
	t.Parallel()
	const (
		i8       = "I8: a call by one that has no lease"
		final    = "I8: a final status was left"
		i9       = "I9: a call that nothing explains"
		i10      = "I10: a message that never becomes final"
		i11      = "I11: claimed before it is due"
		multiply = "I13: copies multiply"
		vain     = "I13: a copy is claimed in vain"
		backlog  = "I13: a backlog is pushed again"
	)
	crash, stop := model{all: failures{crash: 1}}, model{all: failures{stop: 1}}
	deleted, cut := model{all: failures{delete: 1}}, model{all: failures{cut: 1}}
	two := model{messages: 2, begun: true, all: failures{cut: 1}}
	find(t, carriers, []removal{
		{"claimFree", func(g *guards) { g.claimFree = false }, crash, final},
		{"claimDue", func(g *guards) { g.claimDue = false }, crash, i11},
		{"claimLatest", func(g *guards) { g.claimLatest = false }, crash, vain},
		{"handOverFirst", func(g *guards) { g.handOverFirst = false }, crash, i9},
		{"recheck", func(g *guards) { g.recheck = false }, stop, i8},
		{"settleOwner", func(g *guards) { g.settleOwner = false }, stop, i8},
		{"recoverLost", func(g *guards) { g.recoverLost = false }, crash, i10},
		{"recoverExpired", func(g *guards) { g.recoverExpired = false }, model{}, i8},
		{"countCrash", func(g *guards) { g.countCrash = false }, crash, i9},
		{"pushCompared", func(g *guards) { g.pushCompared = false }, two, i10},
		{"pushCounted", func(g *guards) { g.pushCounted = false }, model{}, vain},
		{"firstOfEpoch", func(g *guards) { g.firstOfEpoch = false }, model{messages: 2, all: failures{cut: 1}}, i10},
		{"askInside", func(g *guards) { g.askInside = false }, cut, i10},
		{"pushAgain", func(g *guards) { g.pushAgain = false }, model{all: failures{lead: 1}}, i10},
		{"renewEarliest", func(g *guards) { g.renewEarliest = false }, model{all: failures{flush: 1}}, i10},
		{"sweepLost", func(g *guards) { g.sweepLost = false }, deleted, i10},
		{"sweepOldest", func(g *guards) { g.sweepOldest = false }, model{}, backlog},
		{"moveTaken", func(g *guards) { g.moveTaken = false }, crash, i10},
		// A worker that reads its own whenever it waits in vain would find it, later.
		{"ownOnStart", func(g *guards) { g.ownOnStart, g.ownOnError = false, false }, model{all: failures{crash: 1, restart: 1}}, i10},
		{"ownOnError", func(g *guards) { g.ownOnError = false }, model{all: failures{reply: 1}}, i10},
		{"putBack", func(g *guards) { g.putBack = false }, model{all: failures{lock: 1}}, i10},
		{"backOwn", func(g *guards) { g.backOwn = false }, stop, multiply},
		{"takeBack", func(g *guards) { g.takeBack = false }, crash, i10},
		{"heartbeat", func(g *guards) { g.heartbeat = false }, model{}, vain},
		{"afterLease", func(g *guards) { g.afterLease = false }, crash, vain},
	})
	find(t, map[string]bool{"streams": true}, []removal{
		{"oneReclaims", func(g *guards) { g.oneReclaims = false }, crash, vain},
		{"trimBound", func(g *guards) { g.trimBound = false }, model{}, i10},
		{"ackDeleted", func(g *guards) { g.ackDeleted = false }, model{all: failures{crash: 1, delete: 1}}, i10},
		{"deleteEmpty", func(g *guards) { g.deleteEmpty = false }, crash, i10},
		{"groupAtZero", func(g *guards) { g.groupAtZero = false }, model{all: failures{flush: 1}}, i10},
	})
}

// Four guards save work and no more: without any one of them messages are called for and become
// final as with it, and no copy stays or multiplies. redislist goes without afterLease: what a
// dead worker had taken may be claimed in vain, and is pushed again when its lease has ended.
func TestModel_CarrierGuardsThatOnlySaveWork(t *testing.T) {
	t.Parallel()
	for guard, without := range map[string]func(*guards){
		"claimLatest": func(g *guards) { g.claimLatest = false },
		"heartbeat":   func(g *guards) { g.heartbeat = false },
		"afterLease":  func(g *guards) { g.afterLease = false },
		"oneReclaims": func(g *guards) { g.oneReclaims = false },
	} {
		for name, stream := range carriers {
			for _, all := range []failures{{crash: 2}, {crash: 1, retry: 1}} {
				m := model{guards: design(), stream: stream, vain: true, all: all}
				without(&m.guards)
				f := searched(m)
				require.Empty(t, f.broken, "%s without %s: %s", name, guard, f.story())
				t.Logf("%s without %s, %+v: %d states", name, guard, all, len(f.states))
			}
		}
	}
}

func find(t *testing.T, in map[string]bool, removals []removal) {
	t.Helper()
	for name, stream := range in {
		for _, r := range removals {
			m := r.model
			m.guards, m.stream = design(), stream
			r.without(&m.guards)
			f := searched(m)
			require.Equal(t, r.broken, f.broken, "%s without %s, %+v: %s", name, r.guard, m.all, fmt.Sprint(len(f.states), " states"))
			t.Logf("%s without %s, of %d states: %s", name, r.guard, len(f.states), f.story())
		}
	}
}
