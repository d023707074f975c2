// Package cities contains the places of the world with at least 15,000 inhabitants. Generate makes
// channels there, for trials, the demo and benchmarks; Around and Nearest are the background of the
// console's map. Nothing else of belfry uses it.
//
// Generate writes belfry.channels in one transaction: a failure leaves the table as it
// was. Around and Nearest touch no database.
//
// The data are from GeoNames (geonames.org), licence CC BY 4.0; see CITIES.md.
package cities
