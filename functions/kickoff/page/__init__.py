"""The page that shows what happened: views.py (what it says), charts.py (what it draws), templates/, assets/."""
