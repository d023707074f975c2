package jobs

import (
	"context"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/job"
)

// groupRef names a group of jobs: by its id, or by the id of one of its jobs.
type groupRef struct {
	id    uuid.UUID
	jobID int64 // 0 means that id is set
}

// UnmarshalText reads either form.
func (g *groupRef) UnmarshalText(text []byte) error {
	if id, err := strconv.ParseInt(string(text), 10, 64); err == nil && id > 0 {
		*g = groupRef{jobID: id}
		return nil
	}
	id, err := uuid.ParseBytes(text)
	if err != nil || len(text) != len(uuid.Nil.String()) {
		return &operation.NotAllowedError{Allowed: "a group's id, such as 3f2b8c1e-7a90-4f0d-9c61-2b1f6d5e8a74, or the id of " +
			"one of its jobs, such as 17; see `belfry jobs list`"}
	}
	*g = groupRef{id: id}
	return nil
}

// MarshalText writes the given id.
func (g groupRef) MarshalText() ([]byte, error) {
	if g.jobID != 0 {
		return strconv.AppendInt(nil, g.jobID, 10), nil
	}
	return g.id.MarshalText()
}

// find returns the group's id, or nil if the named job has no group.
func (g groupRef) find(ctx context.Context, store *job.Store) (*uuid.UUID, error) {
	if g.jobID == 0 {
		return &g.id, nil
	}
	j, err := store.Get(ctx, g.jobID)
	if err != nil {
		return nil, fmt.Errorf("--group %d: %w", g.jobID, err)
	}
	return j.GroupID, nil
}
