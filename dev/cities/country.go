package cities

import (
	"fmt"
	"math"
)

// custom has the language and time zone of generated channels of a country.
type custom struct{ locale, timeZone string }

// customs has the countries with most of the world's city dwellers. Countries with several zones have
// no zone: it follows the longitude.
var customs = map[string]custom{
	"AE": {"ar-AE", "Asia/Dubai"}, "AF": {"fa-AF", "Asia/Kabul"}, "AR": {"es-AR", "America/Argentina/Buenos_Aires"},
	"AT": {"de-AT", "Europe/Vienna"}, "AU": {"en-AU", ""}, "BD": {"bn-BD", "Asia/Dhaka"},
	"BE": {"nl-BE", "Europe/Brussels"}, "BG": {"bg-BG", "Europe/Sofia"}, "BR": {"pt-BR", ""},
	"BY": {"be-BY", "Europe/Minsk"}, "CA": {"en-CA", ""}, "CD": {"fr-CD", ""},
	"CH": {"de-CH", "Europe/Zurich"}, "CI": {"fr-CI", "Africa/Abidjan"}, "CL": {"es-CL", "America/Santiago"},
	"CM": {"fr-CM", "Africa/Douala"}, "CN": {"zh-CN", "Asia/Shanghai"}, "CO": {"es-CO", "America/Bogota"},
	"CU": {"es-CU", "America/Havana"}, "CZ": {"cs-CZ", "Europe/Prague"}, "DE": {"de-DE", "Europe/Berlin"},
	"DK": {"da-DK", "Europe/Copenhagen"}, "DO": {"es-DO", "America/Santo_Domingo"}, "DZ": {"ar-DZ", "Africa/Algiers"},
	"EC": {"es-EC", "America/Guayaquil"}, "EG": {"ar-EG", "Africa/Cairo"}, "ES": {"es-ES", "Europe/Madrid"},
	"ET": {"am-ET", "Africa/Addis_Ababa"}, "FI": {"fi-FI", "Europe/Helsinki"}, "FJ": {"en-FJ", "Pacific/Fiji"},
	"FR": {"fr-FR", "Europe/Paris"}, "GB": {"en-GB", "Europe/London"}, "GH": {"en-GH", "Africa/Accra"},
	"GR": {"el-GR", "Europe/Athens"}, "HK": {"zh-HK", "Asia/Hong_Kong"}, "HU": {"hu-HU", "Europe/Budapest"},
	"ID": {"id-ID", ""}, "IE": {"en-IE", "Europe/Dublin"}, "IL": {"he-IL", "Asia/Jerusalem"},
	"IN": {"hi-IN", "Asia/Kolkata"}, "IQ": {"ar-IQ", "Asia/Baghdad"}, "IR": {"fa-IR", "Asia/Tehran"},
	"IS": {"is-IS", "Atlantic/Reykjavik"}, "IT": {"it-IT", "Europe/Rome"}, "JO": {"ar-JO", "Asia/Amman"},
	"JP": {"ja-JP", "Asia/Tokyo"}, "KE": {"sw-KE", "Africa/Nairobi"}, "KH": {"km-KH", "Asia/Phnom_Penh"},
	"KP": {"ko-KP", "Asia/Pyongyang"}, "KR": {"ko-KR", "Asia/Seoul"}, "KZ": {"kk-KZ", ""},
	"LK": {"si-LK", "Asia/Colombo"}, "LY": {"ar-LY", "Africa/Tripoli"}, "MA": {"ar-MA", "Africa/Casablanca"},
	"MM": {"my-MM", "Asia/Yangon"}, "MX": {"es-MX", ""}, "MY": {"ms-MY", "Asia/Kuala_Lumpur"},
	"MZ": {"pt-MZ", "Africa/Maputo"}, "NG": {"en-NG", "Africa/Lagos"}, "NL": {"nl-NL", "Europe/Amsterdam"},
	"NO": {"nb-NO", "Europe/Oslo"}, "NP": {"ne-NP", "Asia/Kathmandu"}, "NZ": {"en-NZ", "Pacific/Auckland"},
	"PE": {"es-PE", "America/Lima"}, "PH": {"fil-PH", "Asia/Manila"}, "PK": {"ur-PK", "Asia/Karachi"},
	"PL": {"pl-PL", "Europe/Warsaw"}, "PT": {"pt-PT", "Europe/Lisbon"}, "RO": {"ro-RO", "Europe/Bucharest"},
	"RS": {"sr-RS", "Europe/Belgrade"}, "RU": {"ru-RU", ""}, "SA": {"ar-SA", "Asia/Riyadh"},
	"SD": {"ar-SD", "Africa/Khartoum"}, "SE": {"sv-SE", "Europe/Stockholm"}, "SG": {"en-SG", "Asia/Singapore"},
	"SN": {"fr-SN", "Africa/Dakar"}, "SY": {"ar-SY", "Asia/Damascus"}, "TH": {"th-TH", "Asia/Bangkok"},
	"TN": {"ar-TN", "Africa/Tunis"}, "TR": {"tr-TR", "Europe/Istanbul"}, "TW": {"zh-TW", "Asia/Taipei"},
	"TZ": {"sw-TZ", "Africa/Dar_es_Salaam"}, "UA": {"uk-UA", "Europe/Kyiv"}, "UG": {"en-UG", "Africa/Kampala"},
	"US": {"en-US", ""}, "UZ": {"uz-UZ", "Asia/Tashkent"}, "VE": {"es-VE", "America/Caracas"},
	"VN": {"vi-VN", "Asia/Ho_Chi_Minh"}, "YE": {"ar-YE", "Asia/Aden"}, "ZA": {"en-ZA", "Africa/Johannesburg"},
}

// customOf returns the custom of a country. The default is English, and the nautical zone of the
// longitude, whose names count westward.
func customOf(country string, longitude float64) custom {
	c, ok := customs[country]
	if !ok {
		c = custom{locale: "en"}
	}
	if c.timeZone == "" {
		c.timeZone = fmt.Sprintf("Etc/GMT%+d", -int(math.Round(longitude/15)))
		if c.timeZone == "Etc/GMT+0" {
			c.timeZone = "Etc/GMT"
		}
	}
	return c
}
