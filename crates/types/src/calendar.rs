//! Days of the proleptic Gregorian calendar.

pub const MILLIS_PER_DAY: i64 = 86_400_000;

/// A calendar day. Year 0 is 1 BC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day {
    pub year: i64,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
}

impl Day {
    /// The day this many days after (or before) 1970-01-01, for years up to a billion in either direction.
    pub fn from_epoch_days(days: i64) -> Day {
        // Counted from 0000-03-01, leap days come last: eras of 400 years, years of an era, months of a year.
        let days = days + 719_468;
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let day = (day_of_year - (153 * shifted_month + 2) / 5 + 1) as u8;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 } as u8;
        Day { year: era * 400 + year_of_era + i64::from(month <= 2), month, day }
    }

    /// Days since 1970-01-01.
    pub fn epoch_days(self) -> i64 {
        let year = self.year - i64::from(self.month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let shifted_month = (i64::from(self.month) + 9) % 12;
        let day_of_year = (153 * shifted_month + 2) / 5 + i64::from(self.day) - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        era * 146_097 + day_of_era - 719_468
    }

    /// The same day of the month, `months` months later, or the last day where that month is shorter.
    pub fn add_months(self, months: i64) -> Day {
        let months = self.year * 12 + i64::from(self.month) - 1 + months;
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) as u8 + 1);
        Day { year, month, day: self.day.min(days_in_month(year, month)) }
    }
}

/// 28 to 31.
pub fn days_in_month(year: i64, month: u8) -> u8 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_count_up_one_by_one() {
        let mut day = Day { year: -401, month: 1, day: 1 };
        for days in day.epoch_days()..day.epoch_days() + 1_000_000 {
            assert_eq!((day.epoch_days(), Day::from_epoch_days(days)), (days, day));
            day = if day.day < days_in_month(day.year, day.month) {
                Day { day: day.day + 1, ..day }
            } else {
                Day { day: 1, ..day.add_months(1) }
            };
        }
        assert_eq!(Day { year: 1970, month: 1, day: 1 }.epoch_days(), 0);
    }
}
