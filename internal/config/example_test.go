package config_test

import (
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/config"
)

type log struct {
	Level string `mapstructure:"level"`
}

type settings struct {
	Log   log           `mapstructure:"log"`
	Pause time.Duration `mapstructure:"pause"`
	Lanes []string      `mapstructure:"lanes"`
}

// A struct with its defaults is the whole schema. What cannot be used keeps its default,
// and every problem has its place.
func ExampleRead() {
	s := settings{Log: log{Level: "info"}, Pause: time.Second}
	loaded := config.Read(config.Input{
		Environ: []string{"BELFRY_LOG_LEVEL=warn", "BELFRY_PAUSE=5", "BELFRY_LANES=day, night", "BELFRY_LOGS_LEVEL=debug"},
		Flags:   map[string]config.Flag{"log.level": {Name: "log-level", Value: "loud"}},
	}, &s, nil)
	loaded.Check(fmt.Errorf("log.level: %q is not allowed; allowed values: info, warn", s.Log.Level)) // by the struct's own Validate

	fmt.Println(s.Pause, s.Lanes, loaded.Source("lanes"))
	fmt.Println(loaded.Err())
	// Output:
	// 1s [day night] BELFRY_LANES
	// configuration: 3 problems
	//   --log-level: log.level: "loud" is not allowed; allowed values: info, warn
	//   BELFRY_LOGS_LEVEL: unknown variable; did you mean BELFRY_LOG_LEVEL?
	//   BELFRY_PAUSE: pause: "5" is not a duration; write it with its unit, as 30s, 5m or 1h30m
}
