package jetstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/outbox"
)

// item is a copy in a stream.
type item struct {
	outbox.Copy
	epoch string
	lane  string
}

// encode returns the body of a message. The lane is last because it may contain spaces.
//
//	job channel push epoch lane
func (i item) encode() []byte {
	return fmt.Appendf(nil, "%d %d %d %s %s", i.JobID, i.ChannelID, i.Push, i.epoch, i.lane)
}

var errNotOurs = errors.New("not a message of belfry")

func decodeItem(data []byte) (i item, err error) {
	parts := strings.SplitN(string(data), " ", 5)
	if len(parts) != 5 || parts[3] == "" {
		return item{}, errNotOurs
	}
	for n, to := range []*int64{&i.JobID, &i.ChannelID, &i.Push} {
		if *to, err = strconv.ParseInt(parts[n], 10, 64); err != nil {
			return item{}, errNotOurs
		}
	}
	i.epoch, i.lane = parts[3], parts[4]
	return i, nil
}

// count is the progress of the pushes of a queue. It is stored atomically with the ids of the last push.
type count struct {
	Epoch string `json:"epoch"`
	First int64  `json:"first"` // push of the epoch
	Last  int64  `json:"last"`
}

func (c count) encode() []byte {
	return fmt.Appendf(nil, `{"epoch":%q,"first":%d,"last":%d}`, c.Epoch, c.First, c.Last)
}

func decodeCount(data []byte) (c count, err error) {
	if err := json.Unmarshal(data, &c); err != nil || c.Epoch == "" || c.Last < c.First {
		return count{}, errNotOurs
	}
	return c, nil
}
