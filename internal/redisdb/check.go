package redisdb

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Check tests whether the server, or each master of a Cluster, is fit to carry ids. The error joins all
// reasons why it is unfit, each with a remedy. Warnings report settings that may be intended, and
// settings that the server did not disclose.
func (d *DB) Check(ctx context.Context) (warnings []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.config.Timeout)
	defer cancel()
	var mu sync.Mutex
	var problems []error
	one := func(ctx context.Context, node *redis.Client) error {
		addr := node.Options().Addr
		if d.config.Sentinel != "" {
			addr = "the master of " + d.config.Sentinel
		}
		text, err := node.Info(ctx).Result()
		if err != nil && !Denied(err) {
			return fmt.Errorf("ask %s: %w", addr, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			warnings = append(warnings, addr+": the user may not run INFO, so that version and settings are not checked (ACL SETUSER … +info)")
			return nil
		}
		unfit, odd := d.judge(parseInfo(text), addr)
		problems, warnings = append(problems, unfit...), append(warnings, odd...)
		return nil
	}
	if cluster, is := d.Do.(*redis.ClusterClient); is {
		err = cluster.ForEachMaster(ctx, one)
	} else if node, is := d.Do.(*redis.Client); is {
		err = one(ctx, node)
	}
	return warnings, errors.Join(append(problems, err)...)
}

// info is the parsed reply of INFO.
type info map[string]string

func parseInfo(text string) info {
	values := make(info)
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok {
			values[name] = strings.TrimSpace(value)
		}
	}
	return values
}

func (i info) number(name string) int64 {
	n, err := strconv.ParseInt(i[name], 10, 64)
	if err != nil {
		return 0 // not reported
	}
	return n
}

// judge evaluates one server's INFO.
func (d *DB) judge(i info, addr string) (unfit []error, odd []string) {
	problem := func(format string, args ...any) { unfit = append(unfit, fmt.Errorf(addr+": "+format, args...)) }
	if version := i["redis_version"]; version != "" && older(version) && i["server_name"] != "valkey" {
		problem("Redis %s is too old; allowed are Redis 6.2 and later, and Valkey", version)
	}
	if policy := i["maxmemory_policy"]; policy != "" && policy != "noeviction" {
		problem("maxmemory-policy %s drops keys when memory is full; allowed is noeviction (CONFIG SET maxmemory-policy "+
			"noeviction, and the same in its configuration)", policy)
	}
	if i["role"] == "slave" {
		problem("it is a replica, which takes no writes; name its master, or the Sentinels that know it (sentinel)")
	}
	switch clustered := i["cluster_enabled"] == "1"; {
	case clustered && !d.config.Cluster:
		problem("it is a node of a Cluster; set cluster: true")
	case !clustered && d.config.Cluster:
		problem("it is no node of a Cluster; set cluster: false")
	}
	if i["maxmemory"] == "0" {
		odd = append(odd, addr+
			": maxmemory is not set: the server may use up the machine's memory instead of refusing pushes (CONFIG SET maxmemory, "+
			"and the same in its configuration)")
	}
	need, most := int64(d.Connections()), i.number("maxclients")
	switch free := most - i.number("connected_clients"); {
	case most > 0 && most < need:
		problem("it takes %d connections (maxclients), and one belfry may have %d; allowed are at least that many for each", most, need)
	case most > 0 && free < need:
		odd = append(odd, fmt.Sprintf("%s: %d connections are free of %d (maxclients), and one belfry may have %d", addr, free, most, need))
	}
	return unfit, odd
}

// Connections returns the maximum number of connections to each server.
func (d *DB) Connections() int { return commands + d.blocking + 1 }

// older reports whether a version is less than 6.2.
func older(version string) bool {
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (major < 6 || major == 6 && minor < 2)
}
