package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belfryhq/belfry/job"
)

// groupRef names a group of jobs: by its id, or by the id of one of its jobs.
type groupRef struct {
	id    uuid.UUID
	jobID int64 // 0: by its id
}

// groupHelp completes the help of commands with --group.
const groupHelp = `GROUP is a group's id or the id of any job of it: ` + "`belfry jobs list`" + ` shows the jobs,
` + "`belfry jobs show ID`" + ` the group. A job that is in no group is one by itself.`

// addGroupFlag adds --group.
func addGroupFlag(flags *pflag.FlagSet, usage string) *parsed[groupRef] {
	return flagOf(flags, "group", "GROUP", usage+": its id, or that of a job of it", parseGroup)
}

// parseGroup parses the value of --group.
func parseGroup(text string) (groupRef, error) {
	if id, err := strconv.ParseInt(text, 10, 64); err == nil && id > 0 {
		return groupRef{jobID: id}, nil
	}
	id, err := uuid.Parse(text)
	if err != nil || len(text) != len(uuid.Nil.String()) {
		return groupRef{}, errors.New("allowed values: a group's id, as 3f2b8c1e-7a90-4f0d-9c61-2b1f6d5e8a74, or the id of one of its jobs, as 17; `belfry jobs list` shows these")
	}
	return groupRef{id: id}, nil
}

// find returns the group's id; nil when the job that names it is in none.
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

// idsOrGroup wants the ids of jobs or --group, and not both.
func idsOrGroup(group *parsed[groupRef]) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if (len(args) > 0) == (group.value != nil) {
			return usagef("%s takes either the ids of jobs or --group GROUP", named(cmd))
		}
		return nil
	}
}

// actedOn is what an act is about: a group, or the jobs with these ids.
func actedOn(ctx context.Context, store *job.Store, ids []int64, group *groupRef) ([]int64, *uuid.UUID, error) {
	if group == nil {
		return ids, nil, nil
	}
	id, err := group.find(ctx, store)
	if err == nil && id == nil {
		return []int64{group.jobID}, nil, nil
	}
	return nil, id, err
}
