// Package cities knows the places of the world with at least 15,000 inhabitants. It makes
// channels there, for trials, the demo and benchmarks, finds a place by a name with a typing
// error in it, for the commands, and says what lies around a point, for maps. Nothing of
// belfry's own work uses it.
//
// Generate writes belfry.channels in one transaction: a failure leaves the table as it
// was. Find, Around and Nearest touch no database.
//
// The data are from GeoNames (geonames.org), licence CC BY 4.0; see CITIES.md.
package cities
