// Package walk tests the console in a real browser, on a belfry daemon in a process of its own, with
// fake providers.
//
//	browser ──► belfry daemon (make build's packages) ──► PostgreSQL
//	  │               └──► fake providers
//	  └── axe-core, messages of the browser's console, requests to the network
//
// The package contains only tests. Each is named TestBrowser_… and is run by `make test-fault`, or by
// `make test-browser` alone.
//
// # Requirements for every page
//
//   - axe-core finds no violation, in light and in dark;
//   - the browser's console is empty: browsers report scripts and styles that the page's policy forbids,
//     and missing files, there;
//   - all requests go to the daemon;
//   - at the width of a phone nothing is wider than the screen.
//
// # Screenshots
//
// With BELFRY_TEST_SCREENSHOTS the walk writes screenshots of the main pages to that directory, at the
// widths of a phone and of a desktop, in light and in dark; `make screenshots` updates docs/screenshots
// with them.
package walk
