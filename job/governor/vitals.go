package governor

import (
	"fmt"
	"slices"
	"time"
)

// vitalSigns judges health probes. A rule comes into force at its limit and ends
// when two probes in a row find its value a fifth below: a value that swings around
// the limit does not make the run flap.
type vitalSigns struct {
	next    time.Time // when the next probe is due; zero means now
	heard   time.Time // the time of the last probe result
	verdict Throttle  // the most urgent rule in force
	calm    map[string]int
	details map[string]string // of the rules in force
	counts  []checkpointCount
	asked   time.Time // when the user's query last had an answer

	reaction reaction // the strongest of the rules in force
	seen     transactionCount
	own      int64 // transactions of this run since the last probe
	ownThen  int64 // and in the interval before
	relays   int64 // of this database's relays in the last interval
}

// reaction is the effect of a rule on a run; higher values are stronger.
type reaction int

const (
	none   reaction = iota
	gentle          // small chunks, rests after slow ones
	slow            // small chunks, and the duty cycle slowDuty
	paused          // no chunk until the next probe
)

// transactionCount is the server's counter of transactions at one probe.
type transactionCount struct {
	at       time.Time
	count    int64
	ofRelays int64
}

// checkpointCount is the counter of requested checkpoints at one probe.
type checkpointCount struct {
	at    time.Time
	count int64
	bytes int64
}

const (
	calmProbes = 2
	calmShare  = 0.8
	// checkpointWindow is the period of HealthConfig.Checkpoints.
	checkpointWindow = time.Minute
	// verdictLife is the lifetime of a verdict without new probe results, so that a broken check does not
	// throttle a run permanently.
	verdictLife = 30 * time.Second
	// firstInterval is the time between the first probe and the second: backends report
	// their transactions every second.
	firstInterval = time.Second
)

// configure ends the rules of disabled checks.
func (v *vitalSigns) configure(c HealthConfig) {
	if !c.probes() {
		*v = vitalSigns{}
		return
	}
	for rule, off := range map[string]bool{
		ruleReplicaLag: c.ReplicaLag == 0, ruleQuery: c.Query == "",
		ruleCheckpoints: c.Checkpoints == 0, ruleForeground: c.Transactions == 0,
	} {
		if off {
			delete(v.details, rule)
		}
	}
	v.settle()
}

func (v *vitalSigns) due(now time.Time, interval time.Duration) bool {
	if now.Before(v.next) {
		return false
	}
	v.next = now.Add(interval)
	return true
}

// hold returns the time until the next probe, for which a pausing rule holds the run.
func (v *vitalSigns) hold(now time.Time, c HealthConfig) time.Duration {
	if v.reaction != paused {
		return 0
	}
	return min(max(v.next.Sub(now), time.Millisecond), c.Interval)
}

// expire ends verdicts that no probe has confirmed for verdictLife.
func (v *vitalSigns) expire(now time.Time, c HealthConfig) {
	life := max(verdictLife, 5*c.Interval)
	if v.verdict.Rule != "" && now.Sub(v.heard) > life {
		v.details, v.calm = nil, nil
		v.settle()
	}
	if _, held := v.details[ruleQuery]; held && now.Sub(v.asked) > life {
		delete(v.details, ruleQuery)
		v.settle()
	}
}

// judge compares a probe's values with their limits. A missing value does not change its rule.
func (v *vitalSigns) judge(now time.Time, found Vitals, c HealthConfig) {
	if v.details == nil {
		v.details, v.calm = make(map[string]string), make(map[string]int)
	}
	if lag := found.ReplicaLag; c.ReplicaLag > 0 && lag != nil {
		v.heard = now
		v.weigh(ruleReplicaLag, float64(*lag), float64(c.ReplicaLag),
			fmt.Sprintf("%s, allowed %s", lag.Round(100*time.Millisecond), c.ReplicaLag))
	}
	if c.Query != "" && found.Query != nil {
		v.asked, v.heard = now, now
		v.weigh(ruleQuery, *found.Query, c.QueryMax, fmt.Sprintf("%g, allowed %g", *found.Query, c.QueryMax))
	}
	if c.Checkpoints > 0 && found.Checkpoints != nil {
		v.heard = now
		v.judgeCheckpoints(now, found, c)
	}
	if c.Transactions > 0 && found.Transactions != nil {
		v.heard = now
		v.judgeTransactions(now, found, c)
	}
	v.settle()
}

// judgeTransactions computes the rate of other programs' transactions from the server's counter. The first
// probe has no previous value: until the next one, two recently active backends count as foreign load. A
// backend reports its transactions up to a second late, so the run's own transactions are the larger number
// of this and the previous interval. The same applies to belfry's relays, which report their number about
// every second. The count of a relay disappears when it ends.
func (v *vitalSigns) judgeTransactions(now time.Time, found Vitals, c HealthConfig) {
	before := v.seen
	v.seen = transactionCount{now, *found.Transactions, found.OfRelays}
	own := max(v.own, v.ownThen)
	v.own, v.ownThen = 0, v.own
	if !before.at.IsZero() {
		relays := max(found.OfRelays-before.ofRelays, 0)
		own += max(relays, v.relays)
		v.relays = relays
	}
	took := now.Sub(before.at).Seconds()
	switch {
	case before.at.IsZero():
		v.next = now.Add(min(c.Interval, firstInterval))
		if recent := found.RecentBackends; recent != nil && *recent >= 2 {
			v.calm[ruleForeground] = calmProbes - 1 // the next probe may end it
			v.details[ruleForeground] = fmt.Sprintf("%d other active connections", *recent)
		}
	case took <= 0 || v.seen.count < before.count: // the statistics were reset
	default:
		others := max(float64(v.seen.count-before.count-own)/took, 0)
		v.weigh(ruleForeground, others, float64(c.Transactions), fmt.Sprintf("%.0f foreign transactions/s, allowed %d", others, c.Transactions))
	}
}

// judgeCheckpoints counts requested checkpoints over the last minute. It starts again if the server's
// statistics are reset.
func (v *vitalSigns) judgeCheckpoints(now time.Time, found Vitals, c HealthConfig) {
	seen := checkpointCount{at: now, count: *found.Checkpoints}
	if found.WALBytes != nil {
		seen.bytes = *found.WALBytes
	}
	if n := len(v.counts); n > 0 && seen.count < v.counts[n-1].count {
		v.counts = nil
	}
	v.counts = append(v.counts, seen)
	// The oldest one kept is the last from before the window.
	if first := slices.IndexFunc(v.counts, func(c checkpointCount) bool { return now.Sub(c.at) <= checkpointWindow }); first > 1 {
		v.counts = slices.Delete(v.counts, 0, first-1)
	}
	oldest := v.counts[0]
	requested := seen.count - oldest.count
	detail := fmt.Sprintf("%d requested in a minute, allowed %d", requested, c.Checkpoints)
	if took := now.Sub(oldest.at).Seconds(); took > 0 && seen.bytes > oldest.bytes {
		detail += fmt.Sprintf("; WAL %.1f MB/s", float64(seen.bytes-oldest.bytes)/took/1e6)
	}
	v.weigh(ruleCheckpoints, float64(requested), float64(c.Checkpoints), detail)
}

// weigh activates a rule above its limit and ends it after enough calm probes.
func (v *vitalSigns) weigh(rule string, value, limit float64, detail string) {
	_, held := v.details[rule]
	switch {
	case value > limit:
		v.calm[rule] = 0
		v.details[rule] = detail
	case !held:
	case limit > 0 && value > limit*calmShare: // neither ill nor well
		v.calm[rule] = 0
		v.details[rule] = detail
	default:
		if v.calm[rule]++; v.calm[rule] >= calmProbes {
			delete(v.details, rule)
		}
	}
}

// settle picks the most urgent rule in force.
func (v *vitalSigns) settle() {
	v.verdict, v.reaction = Throttle{}, none
	for _, rule := range []struct {
		name string
		reaction
	}{
		{ruleReplicaLag, paused},
		{ruleQuery, paused},
		{ruleCheckpoints, slow},
		{ruleForeground, gentle},
	} {
		detail, held := v.details[rule.name]
		if held && rule.reaction > v.reaction {
			v.verdict, v.reaction = Throttle{rule.name, detail}, rule.reaction
		}
	}
}
