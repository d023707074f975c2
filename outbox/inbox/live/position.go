package live

import (
	"strconv"
	"strings"
	"time"
)

const (
	// maxAge is the age up to which a position can be resumed.
	maxAge = time.Hour
	// slack is added to the time of a position: for the clocks of servers before and after a failover, and because
	// the nodes poll at different times.
	slack = 10 * time.Second
)

// position is a place in the stream of a channel, as a client stores it: all notifications with arrivals up to
// arrival were sent, and all that older jobs wrote before at. The zero value is no position.
type position struct {
	arrival int64
	at      int64 // seconds since 1970 in the database's clock
}

func (p position) String() string {
	if p == (position{}) {
		return ""
	}
	return strconv.FormatInt(p.arrival, 10) + "-" + strconv.FormatInt(p.at, 10)
}

// parsePosition returns the position of a text, or false.
func parsePosition(text string) (p position, ok bool) {
	arrival, at, _ := strings.Cut(text, "-")
	var err1, err2 error
	p.arrival, err1 = strconv.ParseInt(arrival, 10, 64)
	p.at, err2 = strconv.ParseInt(at, 10, 64)
	return p, err1 == nil && err2 == nil && p.arrival >= 0 && p.at >= 0
}

// resumable reports whether the notifications after p can be found at now, which is never before p.
func (p position) resumable(now position) bool {
	return p.at >= now.at-int64(maxAge/time.Second) && p.at <= now.at+int64(slack/time.Second) && p != position{}
}
