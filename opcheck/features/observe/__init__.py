"""``opcheck observe``; ``feature.json`` declares it."""
