// Package walk goes through the console as people do: in a real browser, on a belfry daemon that
// runs in a process of its own, with providers that are played.
//
//	browser ──► belfry daemon (make build's packages) ──► PostgreSQL
//	  │               └──► fake providers
//	  └── axe-core, what the page says on its console, what it asks the network for
//
// It has tests and nothing else. Each is named TestBrowser_… and is run by `make test-fault`, or by
// `make test-browser` alone.
//
// # What every page is held to
//
//   - axe-core finds no violation, in light and in dark;
//   - the page says nothing on the browser's console, which is where the browser complains of scripts
//     and styles that the page's policy does not let run, and of what is missing;
//   - nothing is asked of any server but the daemon;
//   - at the width of a telephone nothing is wider than the screen.
//
// # Pictures
//
// With BELFRY_TEST_SCREENSHOTS the walk leaves a picture of the main pages in that directory, at the
// width of a telephone and of a desk, in light and in dark; `make screenshots` has it be
// docs/screenshots.
package walk
