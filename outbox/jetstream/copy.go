package jetstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/outbox"
)

// item is one copy as it stands in a stream.
type item struct {
	outbox.Copy
	epoch string
	lane  string
}

// encode is the whole of a message in a stream: the lane comes last, since it may hold spaces.
//
//	job channel push epoch lane
func (i item) encode() []byte {
	return fmt.Appendf(nil, "%d %d %d %s %s", i.JobID, i.ChannelID, i.Push, i.epoch, i.lane)
}

var errNotOurs = errors.New("a message that belfry has not written")

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

// count is how far the pushes of a queue are. The message that holds it is stored with the ids
// of the last push, all or none.
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
